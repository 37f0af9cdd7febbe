"""Runs programs to measure, counts processor time of processes, and detects pauses of the machine.

Shared machines stand still now and then. A process of its own sleeps for moments and adds up by how much they last
longer than usual. A machine that stands still does so for that process as for the measurement, at least where both are
on the same core.
"""

import multiprocessing
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import httpx

from specpair.child_processes.children import child

_MOMENT, _USUAL = 2e-3, 1e-3  # seconds: of a sleep, and by which it usually lasts longer


@contextmanager
def watch() -> Iterator[Callable[[], float]]:
    """Watch the machine while the block lasts; yields a function that returns the seconds lost so far."""
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


class NotReady(RuntimeError):
    """A program ended before it was ready, or took too long. The message quotes the end of its log."""


@contextmanager
def running(
    *command: str, client: httpx.Client, ready: str, environment: dict[str, str], seconds: float
) -> Iterator["subprocess.Popen[str]"]:
    """Run a server while the block lasts, from when it answers `ready`, a path, with a success. Raises NotReady.

    `command`, `environment`: as for `child`.
    """
    with (
        tempfile.TemporaryFile("w+", errors="replace") as log,
        child(*command, environment=environment, stdout=log.fileno(), stderr=subprocess.STDOUT) as process,
    ):
        give_up = time.monotonic() + seconds
        while not _succeeds(client, ready):
            if process.poll() is not None or time.monotonic() > give_up:
                log.seek(0)
                raise NotReady(
                    f"{command[1]} is not ready (status {process.returncode}); its log ends with\n{log.read()[-3000:]}"
                )
            time.sleep(0.05)
        yield process


def _succeeds(client: httpx.Client, path: str) -> bool:
    try:
        return client.get(path).is_success
    except httpx.TransportError:  # it does not listen yet
        return False


def used_by(process: int) -> float:
    """Processor seconds that the process with this id has used. Needs Linux."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def used_here_and_by(process: int) -> float:
    """Processor seconds that this process and the process with this id have used."""
    return time.process_time() + used_by(process)
