"""Whether the machine was itself while something was measured: on shared ones it stands still now and then.

A process of its own sleeps for moments and adds up by how much more than usual they last. What stands still does so for
it as for the measurement, at least where it comes to be on the same core.
"""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized

_MOMENT, _USUAL = 2e-3, 1e-3  # seconds: of a sleep, and by which it may last longer


class Watch:
    """Seconds lost so far."""

    def __init__(self, lost: "Synchronized[float]") -> None:
        self._lost = lost
        self._began = self._before = 0.0

    def start(self) -> None:
        """From now on."""
        self._began, self._before = time.perf_counter(), self._lost.value

    @property
    def share(self) -> float:
        """Of the time since the start, what was lost."""
        return (self._lost.value - self._before) / (time.perf_counter() - self._began)


@contextmanager
def watch() -> Iterator[Watch]:
    """Watch the machine for as long as the block lasts."""
    context = multiprocessing.get_context("spawn")
    lost: Synchronized[float] = context.Value("d", 0.0)
    process = context.Process(target=_beat, args=(lost,), daemon=True)
    process.start()
    try:
        yield Watch(lost)
    finally:
        process.terminate()
        process.join()


def _beat(lost: "Synchronized[float]") -> None:
    parent = multiprocessing.parent_process()
    while parent is None or parent.is_alive():  # not beyond it, even where it is killed
        began = time.perf_counter()
        time.sleep(_MOMENT)
        over = time.perf_counter() - began - _MOMENT - _USUAL
        if over > 0.0:
            lost.value += over
