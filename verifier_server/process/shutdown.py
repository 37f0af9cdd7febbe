"""The end of the process: what is under way is told so, and nothing of it looks like a fault.

A server that is to stop waits for its requests, and a stream of tokens may last for ever. So the service hears of the
signal at once: what has not ended after a moment is answered with `shutting_down`. What a server cancels all the same
(at a second Ctrl-C, or in a pass that takes longer than it waits) ends without a traceback.

A process that was told to stop does stop: what cannot be interrupted, such as the load of a model, is left behind.
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

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from speculation.errors import ShuttingDown

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class StopSignals:
    """The signals that told the process to stop, the first one first."""

    numbers: list[int] = field(default_factory=list)
    leaves: bool = False  # whether the application is ending, so that a further signal has the process end at once

    def leave(self) -> None:
        """End the process now, as the first signal does to a process that does not handle it."""
        number = self.numbers[0]
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)  # process 1, as in a container, is spared by its own signals


@contextmanager
def heard(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Iterator[StopSignals]:
    """Have `stop` called in `loop` at a signal that ends the process, before whoever handles that signal.

    Only in the main thread: elsewhere there are no signals.
    """
    told = StopSignals()
    if threading.current_thread() is not threading.main_thread():
        yield told
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if any(getattr(getattr(handler, "__self__", None), "should_exit", False) for handler in before.values()):
        told.numbers.append(signal.SIGINT)  # uvicorn heard one before we did; it does not say which
        stop()

    def handle(number: int, frame: FrameType | None) -> None:
        told.numbers.append(number)
        if told.leaves:
            told.leave()
        loop.call_soon_threadsafe(stop)
        handler: Any = before[signal.Signals(number)]
        handler(number, frame)

    chained = [number for number, handler in before.items() if callable(handler)]
    for number in chained:
        signal.signal(number, handle)
    try:
        yield told
    finally:
        for number in chained:
            if signal.getsignal(number) is handle:
                signal.signal(number, before[number])


class EndsQuietly:
    """Around the application: what is cancelled while it stops is answered, if it can be, and not logged as a fault."""

    def __init__(self, app: ASGIApp, stopping: Callable[[], bool]) -> None:
        self._app, self._stopping = app, stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, _until_cancelled(receive), send)
            return
        begun = False

        async def note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, note)
        except asyncio.CancelledError:
            if not self._stopping():
                raise
            if not begun:
                error = ShuttingDown("the verifier is shutting down: ask again when it is back")
                await JSONResponse(error.body(), error.status, {"Connection": "close"})(scope, receive, send)


def _until_cancelled(receive: Receive) -> Receive:
    """A server that stops in a hurry cancels the application in place of telling it to end."""

    async def receive_or_end() -> Message:
        try:
            return await receive()
        except asyncio.CancelledError:
            return {"type": "lifespan.shutdown"}

    return receive_or_end
