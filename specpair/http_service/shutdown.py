"""Shuts the process down: texts under way end or get an error, no fault is logged, and the process ends.

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
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from types import FrameType
from typing import Any

from specpair.protocol.errors import ShuttingDown

_log = logging.getLogger("specpair.service")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE = 2.0  # seconds that requests have to finish when the process is told to stop


class Draining:
    """Whether a service drains, and when it has drained. Used in the event loop."""

    def __init__(self, seconds: float, under_way: Callable[[], float]) -> None:
        """`seconds`: the grace of the texts under way; 0: none.
        `under_way()`: seconds until no text is under way if nothing happens until then; 0: none is now; infinity: one
            is until `changed` is called.
        """
        self.seconds, self._under_way = seconds, under_way
        self.begun = False
        self._then: Callable[[], object] | None = None  # None: not draining, or it is over
        self._grace: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None

    def check_new_text(self) -> None:
        """Raise ShuttingDown while no new text is accepted. Call this before a text begins."""
        if self.begun:
            raise ShuttingDown("this process is draining and takes no new texts: ask again when it is back")

    def begin(self, then: Callable[[], object]) -> None:
        """Accept no new texts, and call `then` when no text is under way or the grace is over."""
        self.begun, self._then = True, then
        self.changed()
        if self._then is not None:
            said = "draining took too long: the texts under way are ended"
            self._grace = asyncio.get_running_loop().call_later(self.seconds, self._end, said)
            _log.info("draining: new texts are refused, texts under way have %g s to end", self.seconds)

    def changed(self) -> None:
        """Check for texts under way, after a request or a text has ended."""
        if self._then is None:
            return
        if self._look is not None:
            self._look.cancel()
            self._look = None
        wait = self._under_way()
        if wait <= 0.0:
            self._end("drained: no text is under way any more")
        elif wait < inf:
            self._look = asyncio.get_running_loop().call_later(wait, self.changed)

    def cancel(self) -> None:
        """Do not wait any longer, and do not call `then`. New texts stay refused."""
        for timer in (self._grace, self._look):
            if timer is not None:
                timer.cancel()
        self._then = None

    def _end(self, said: str) -> None:
        then, waited = self._then, self._grace is not None
        self.cancel()
        if waited:
            _log.info("%s", said)
        if then is not None:
            then()


@dataclass(slots=True)
class StopSignals:
    """The stop signals (SIGINT, SIGTERM) that the process has received, in order."""

    numbers: list[int] = field(default_factory=list)
    heard: bool = False  # whether this process's signals come here
    app_ending: bool = False  # whether the application is shutting down; a further signal then ends the process at once

    def end_process(self) -> None:
        """End the process now, as the first signal would without a handler; without a signal, as SIGTERM would."""
        number = self.numbers[0] if self.numbers else signal.SIGTERM
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
    received.heard = True
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def pass_on(number: int, frame: FrameType | None = None) -> None:
        loop.call_soon_threadsafe(stop)
        handler: Any = before[signal.Signals(number)]
        handler(number, frame)

    def handle(number: int, frame: FrameType | None) -> None:
        received.numbers.append(number)
        if received.app_ending:
            received.end_process()
        if draining is not None and number == signal.SIGTERM and len(received.numbers) == 1:
            loop.call_soon_threadsafe(draining.begin, lambda: pass_on(number))
            return
        if draining is not None:
            loop.call_soon_threadsafe(draining.cancel)
        pass_on(number, frame)

    chained = [number for number, handler in before.items() if callable(handler)]
    for number in chained:
        signal.signal(number, handle)
    try:
        yield received
    finally:
        for number in chained:
            if signal.getsignal(number) is handle:
                signal.signal(number, before[number])


class EndedBySigterm(SystemExit):
    """The process was told to end by SIGTERM, and ends with status 0."""


def end_by_sigterm() -> None:
    """Have SIGTERM raise `EndedBySigterm`, which ends the process with status 0. Does nothing where it has a handler.

    To be called before uvicorn takes the signals: it raises a signal again at the end of its shutdown, with the handler
    of before.
    """
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise EndedBySigterm(0)
