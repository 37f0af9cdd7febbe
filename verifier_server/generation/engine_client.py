"""The event loop's way to the engine: hands it requests, awaits the answers, drops requests of lost clients."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from starlette.types import Receive

from specpair.protocol.errors import InvalidRequest, SpecPairError
from verifier_server.engine.port import TokenEngine
from verifier_server.engine.requests import Answer, Request

PATIENCE = 0.25  # seconds; nearly all answers come sooner, and watching a connection costs more than answering

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

    async def results(
        self, engine: TokenEngine, requests: Sequence[Request], receive: Receive
    ) -> list[Answer | SpecPairError]:
        """Hand requests to the engine together, so that they can share a pass. Returns the result of each.

        All are dropped once `receive` says that their client disconnected.
        """
        futures = []
        for request in requests:
            future, request.done = self.future()
            futures.append(future)

        def drop() -> None:
            for request in requests:
                request.cancelled = True
                request.done(disconnected())

        engine.submit(*requests)
        with self.watched(receive, drop):
            return [await future for future in futures]

    async def answer(self, engine: TokenEngine, request: Request, receive: Receive) -> Answer:
        """The answer to one request, as in `results`. Raises the error that the engine answers with."""
        (result,) = await self.results(engine, (request,), receive)
        if isinstance(result, SpecPairError):
            raise result
        return result

    @contextmanager
    def watched(self, receive: Receive, on_disconnect: Callable[[], None]) -> Iterator[None]:
        """While the block runs, call `on_disconnect` and `deliver` once `receive` says that the client disconnected.

        The request's body must have been read before. The connection is watched only after `PATIENCE`.
        """
        loop = asyncio.get_running_loop()
        task: asyncio.Task[None] | None = None

        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            on_disconnect()
            self.deliver()

        def watch() -> None:
            nonlocal task
            task = loop.create_task(listen())

        timer = loop.call_later(PATIENCE, watch)
        try:
            yield
        finally:
            timer.cancel()
            if task is not None:
                task.cancel()

    def _make(self) -> None:
        # Calls added meanwhile get a turn of their own, so that the loop can do other work in between.
        for _ in range(len(self._calls)):
            self._calls.popleft()()


def disconnected() -> InvalidRequest:
    """The error of a request whose client has disconnected."""
    return InvalidRequest("the connection was closed before the answer came")
