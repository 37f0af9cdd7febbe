"""Waiting for what other threads and processes do."""

import threading
from collections.abc import Callable


def until(condition: Callable[[], bool], why: str, seconds: float = 10.0) -> None:
    """Wait until a condition holds. `why`: what is wrong if it does not."""
    pause = threading.Event()
    for _ in range(int(100 * seconds)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError(why)
