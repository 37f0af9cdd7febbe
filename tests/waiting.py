"""Waiting for what other threads and processes do."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="/proc says who lives")


def until(condition: Callable[[], bool], why: str, seconds: float = 10.0) -> None:
    """Wait until a condition holds. `why`: what is wrong if it does not."""
    pause = threading.Event()
    for _ in range(int(100 * seconds)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError(why)


def gone(pid: int) -> bool:
    """Whether a process that is not this one's child ends within seconds."""
    give_up = time.monotonic() + 20.0
    while time.monotonic() < give_up:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":  # its new parent has not reaped it yet
            return True
        time.sleep(0.01)
    return False


@contextmanager
def no_thread_left() -> Iterator[None]:
    """No thread that begins in the block is left behind it."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(5.0)  # it may be about to end
    assert set(threading.enumerate()) <= before
