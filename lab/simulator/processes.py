"""Processes that compute replications."""

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager

# New objects until the collector looks among them, and how often it does so until it looks among older and all ones.
# Python's are 700, 10 and 10; all ones, which hold the fleet, are then looked at so often that it takes a fifth.
_THRESHOLDS = (5_000, 4, 4)


def collect_seldom() -> None:
    """Have this process spend less time on the search for cycles. Memory stays flat over simulated time.

    What is there by now, modules for the most part, is never looked at again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes that are started in this context never hear of Ctrl-C, also while they import their modules. This
    process hears of it when the context ends."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
