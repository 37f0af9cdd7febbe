"""What the machine does during a measurement: how long processes have a processor, and for how long it stands still.

Shared machines stand still now and then. A process of its own sleeps for moments and adds up by how much they last
longer than usual. A machine that stands still does so for that process as for the measurement, at least where both are
on the same core.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

_MOMENT, _USUAL = 2e-3, 1e-3  # seconds: of a sleep, and by which it usually lasts longer


@contextmanager
def watch() -> Iterator[Callable[[], float]]:
    """Watch the machine for as long as the block lasts; yields what says how many seconds were lost so far."""
    context = multiprocessing.get_context("spawn")
    lost: Synchronized[float] = context.Value("d", 0.0)
    process = context.Process(target=_beat, args=(lost,), daemon=True)
    process.start()
    try:
        yield lambda: lost.value
    finally:
        process.terminate()
        process.join()


def _beat(lost: "Synchronized[float]") -> None:
    parent = multiprocessing.parent_process()
    while parent is None or parent.is_alive():  # ends also where the parent is killed
        began = time.perf_counter()
        time.sleep(_MOMENT)
        over = time.perf_counter() - began - _MOMENT - _USUAL
        if over > 0.0:
            lost.value += over


def used_by(process: int) -> float:
    """Seconds that the process of this id has used. Needs Linux."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def used_here_and_by(process: int) -> float:
    """Seconds that this process and the one of this id have used."""
    return time.process_time() + used_by(process)
