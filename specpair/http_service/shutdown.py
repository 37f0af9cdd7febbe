"""Shuts the process down: texts under way end, or get an error; nothing is logged as a fault; the process does end.

SIGTERM drains: the server goes on serving until no text is under way, or the grace is over. It stops only then, because
a server that stops closes its sockets at once. SIGINT (Ctrl-C), and a second signal of either kind, stop the server
without draining.

A server that stops waits for its open requests, but a stream of tokens may never end. Therefore the service is informed
that it has to stop, and answers requests that do not finish in time with `shutting_down`. Requests that the server
cancels nevertheless (after a second Ctrl-C, or during a forward pass that takes longer than the server waits) end
without a traceback, which the application sees to. Work that cannot be interrupted, such as loading a model, does not
delay the end.
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

from specpair.http_service.draining import Draining

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
def stop_signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], draining: Draining | None = None
) -> Iterator[StopSignals]:
    """While the block runs, have the process drain on SIGTERM, and stop on SIGINT or after the draining.

    To stop is to call `stop` in `loop`, and the handler that was installed before. Without `draining`, SIGTERM stops,
    too. Does nothing outside of the main thread, which alone receives signals.
    """
    received = StopSignals()
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if any(getattr(_server(handler), "should_exit", False) for handler in before.values()):
        received.numbers.append(signal.SIGINT)  # uvicorn has received one already; it does not say which
        stop()

    def stop_drained(number: int) -> None:
        """Stop the server, so that the process ends with status 0: uvicorn would end with a signal that it handles."""
        stop()
        handler: Any = before[signal.Signals(number)]
        if hasattr(server := _server(handler), "should_exit"):
            server.should_exit = True
        else:
            handler(number, None)

    def handle(number: int, frame: FrameType | None) -> None:
        received.numbers.append(number)
        if received.app_ending:
            received.end_process()
        if draining is not None and number == signal.SIGTERM and len(received.numbers) == 1:
            loop.call_soon_threadsafe(draining.begin, lambda: stop_drained(number))
            return
        if draining is not None:
            loop.call_soon_threadsafe(draining.cancel)
        loop.call_soon_threadsafe(stop)
        handler: Any = before[signal.Signals(number)]
        handler(number, frame)
        if draining is not None and draining.begun and hasattr(server := _server(handler), "force_exit"):
            server.force_exit = True  # uvicorn itself takes no signal of the draining for a first one

    chained = [number for number, handler in before.items() if callable(handler)]
    for number in chained:
        signal.signal(number, handle)
    try:
        yield received
    finally:
        for number in chained:
            if signal.getsignal(number) is handle:
                signal.signal(number, before[number])


def _server(handler: Any) -> Any:
    """The server whose method `handler` is; None if it is none."""
    return getattr(handler, "__self__", None)
