"""The way from the engine's thread back to the event loop: one wake-up for all that a pass has to tell."""

import asyncio
from collections import deque
from collections.abc import Callable


class Outbox:
    """Collects calls from any thread and makes them in the loop's. The loop is attached before the first is put in."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: deque[Callable[[], object]] = deque()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say which loop makes the calls."""
        self._loop = loop

    def put(self, call: Callable[[], object]) -> None:
        """Have `call` made, in order, after the next `deliver`."""
        self._calls.append(call)

    def deliver(self) -> None:
        """Wake the loop, if there is anything for it."""
        if self._calls and self._loop is not None:
            self._loop.call_soon_threadsafe(self._make)

    def _make(self) -> None:
        # What is put in meanwhile has its own turn, after whatever else the loop has to do.
        for _ in range(len(self._calls)):
            self._calls.popleft()()
