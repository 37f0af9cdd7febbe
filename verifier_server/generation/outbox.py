"""Carries answers from the engine's thread to the event loop, with one wake-up per pass."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class Outbox:
    """Collects calls from any thread, and makes them in the event loop. `attach` comes before the first `put`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: deque[Callable[[], object]] = deque()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop that makes the calls."""
        self._loop = loop

    def put(self, call: Callable[[], object]) -> None:
        """Add a call. Calls are made in order after the next `deliver`."""
        self._calls.append(call)

    def future(self) -> tuple[asyncio.Future[T], Callable[[T], None]]:
        """A future, and a function that sets its result from any thread, as `put` does. The first result counts."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def settle(result: T) -> None:
            if not future.done():
                future.set_result(result)

        return future, lambda result: self.put(partial(settle, result))

    def deliver(self) -> None:
        """Wake the loop if calls are due."""
        if self._calls and self._loop is not None:
            self._loop.call_soon_threadsafe(self._make)

    def _make(self) -> None:
        # Calls added meanwhile get a turn of their own, so that the loop can do other work in between.
        for _ in range(len(self._calls)):
            self._calls.popleft()()
