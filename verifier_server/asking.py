"""Guesses as the event loop sees them: handed to the engine, awaited, and dropped when nobody waits any more."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial

from starlette.types import Receive

from speculation.errors import InvalidRequest, SpecPairError
from verifier_server.departures import Departures, Waiting
from verifier_server.engine import Engine
from verifier_server.jobs import Answer, Job
from verifier_server.outbox import Outbox
from verifier_server.sessions import Session

Told = Callable[[Answer | SpecPairError], None]  # called with each answer, from any thread
Start = Callable[[Told], Callable[[], None]]  # begins something that tells its answers; returns what calls it off


class Asking:
    """Asks an engine on behalf of clients. Used in the event loop."""

    def __init__(self, outbox: Outbox) -> None:
        """`outbox`: the way that the engine's answers take."""
        self._outbox = outbox
        self._departures = Departures()

    async def answer(
        self,
        engine: Engine,
        receive: Receive,
        session: Session,
        position: int,
        drafts: Sequence[int] = (),
        *,
        next_in: float | None = None,
        goes_on: bool | None = None,
    ) -> Answer:
        """The answer to a guess; the rest as for `Job`. Raises what the engine answers.

        The guess is dropped when the client closes its connection, as `receive` tells.
        """

        def start(told: Told) -> Callable[[], None]:
            return handed_in(engine, Job(session, position, list(drafts), told, next_in=next_in, goes_on=goes_on))

        return await self._settled(start, receive, lambda _: True)

    async def last(self, start: Start, receive: Receive) -> Answer:
        """The last answer of a text that `start` begins, called off when the client hangs up. Raises what is told."""
        return await self._settled(start, receive, lambda answer: answer.finish_reason is not None)

    async def each(self, start: Start) -> AsyncGenerator[Answer]:
        """The answers of a text that `start` begins. Closing the iterator calls it off: forget the session, too."""
        results: asyncio.Queue[Answer | SpecPairError] = asyncio.Queue()
        call_off = start(lambda result: self._outbox.put(partial(results.put_nowait, result)))
        try:
            finished = False
            while not finished:
                result = await results.get()
                if isinstance(result, SpecPairError):
                    raise result
                finished = result.finish_reason is not None
                yield result
                if not results.empty():  # an engine faster than this stream must not keep the loop from all else
                    await asyncio.sleep(0)
        finally:
            call_off()

    async def _settled(self, start: Start, receive: Receive, settles: Callable[[Answer], bool]) -> Answer:
        future: asyncio.Future[Answer | SpecPairError] = asyncio.get_running_loop().create_future()

        def settle(result: Answer | SpecPairError) -> None:
            if not future.done():  # the client may be gone
                future.set_result(result)

        def told(result: Answer | SpecPairError) -> None:
            if isinstance(result, SpecPairError) or settles(result):
                self._outbox.put(partial(settle, result))

        def left() -> None:
            call_off()
            settle(InvalidRequest("the connection was closed before the answer came"))

        with Waiting(self._departures, receive, left):
            call_off = start(told)
            try:
                result = await future
            finally:
                call_off()
        if isinstance(result, SpecPairError):
            raise result
        return result


def handed_in(engine: Engine, job: Job) -> Callable[[], None]:
    """Submit `job`; returns what calls it off."""
    engine.submit(job)

    def call_off() -> None:
        job.cancelled = True

    return call_off
