"""Shuts the process down: open requests get an error, nothing is logged as a fault, and the process does end.

A server that is told to stop waits for its open requests, but a stream of tokens may never end. Therefore the service
is informed of the signal at once, and answers requests that do not finish in time with `shutting_down`. Requests that
the server cancels nevertheless (after a second Ctrl-C, or during a forward pass that takes longer than the server
waits) end without a traceback, which `api.entrance` sees to. Work that cannot be interrupted, such as loading a model,
does not delay the end.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class StopSignals:
    """The stop signals (SIGINT, SIGTERM) that the process has received, in order."""

    numbers: list[int] = field(default_factory=list)
    app_ending: bool = False  # whether the application is shutting down; a further signal then ends the process at once

    def end_process(self) -> None:
        """End the process now, as the first signal would without a handler."""
        number = self.numbers[0]
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)  # process 1 (in a container) is not ended by its own signals


@contextmanager
def stop_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Iterator[StopSignals]:
    """While the block runs, call `stop` in `loop` on SIGINT and SIGTERM, then the handler that was installed before.

    Does nothing outside of the main thread, which alone receives signals.
    """
    received = StopSignals()
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if any(getattr(getattr(handler, "__self__", None), "should_exit", False) for handler in before.values()):
        received.numbers.append(signal.SIGINT)  # uvicorn has received one already; it does not say which
        stop()

    def handle(number: int, frame: FrameType | None) -> None:
        received.numbers.append(number)
        if received.app_ending:
            received.end_process()
        loop.call_soon_threadsafe(stop)
        handler: Any = before[signal.Signals(number)]
        handler(number, frame)

    chained = [number for number, handler in before.items() if callable(handler)]
    for number in chained:
        signal.signal(number, handle)
    try:
        yield received
    finally:
        for number in chained:
            if signal.getsignal(number) is handle:
                signal.signal(number, before[number])
