"""The event loop's way to the engine: hands it requests, awaits the answers, drops requests of lost clients."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from specpair.protocol.errors import InvalidRequest, SpecPairError
from verifier_server.engine.port import TokenEngine
from verifier_server.engine.requests import Answer, Request

T = TypeVar("T")


class EngineClient:
    """Sends requests of clients to an engine, and carries answers to the event loop, with one wake-up per pass.

    `put` and `deliver` may be called from any thread, all else in the event loop. `attach` comes before the first
    `put`.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: deque[Callable[[], object]] = deque()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop that makes the calls."""
        self._loop = loop

    def put(self, call: Callable[[], object]) -> None:
        """Add a call. Calls are made in the event loop, in order, after the next `deliver`."""
        self._calls.append(call)

    def deliver(self) -> None:
        """Wake the loop if calls are due."""
        if self._calls and self._loop is not None:
            self._loop.call_soon_threadsafe(self._make)

    def future(self) -> tuple[asyncio.Future[T], Callable[[T], None]]:
        """A future, and a function that sets its result from any thread, as `put` does. The first result counts."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def settle(result: T) -> None:
            if not future.done():
                future.set_result(result)

        return future, lambda result: self.put(partial(settle, result))

    async def results(self, engine: TokenEngine, requests: Sequence[Request]) -> list[Answer | SpecPairError]:
        """Hand requests to the engine together, so that they can share a pass. Returns the result of each.

        All are dropped if the wait is cancelled.
        """
        futures = []
        for request in requests:
            future, request.done = self.future()
            futures.append(future)
        engine.submit(*requests)
        try:
            return [await future for future in futures]
        except asyncio.CancelledError:
            for request in requests:
                request.cancelled = True
            raise

    async def answer(self, engine: TokenEngine, request: Request) -> Answer:
        """The answer to one request, as in `results`. Raises the error that the engine answers with."""
        (result,) = await self.results(engine, (request,))
        if isinstance(result, SpecPairError):
            raise result
        return result

    def _make(self) -> None:
        # Calls added meanwhile get a turn of their own, so that the loop can do other work in between.
        for _ in range(len(self._calls)):
            self._calls.popleft()()


def disconnected() -> InvalidRequest:
    """The error of a request whose client has disconnected."""
    return InvalidRequest("the connection was closed before the answer came")
