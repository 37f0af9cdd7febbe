"""Guesses as the event loop sees them: handed to the engine, awaited, and dropped when nobody waits any more."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from starlette.types import Receive

from speculation.errors import InvalidRequest, SpecPairError
from speculation.proposal import Weights
from verifier_server.departures import Departures, Waiting
from verifier_server.engine import Engine
from verifier_server.jobs import Answer, Job
from verifier_server.outbox import Outbox
from verifier_server.sessions import Session

Told = Callable[[Answer | SpecPairError], None]  # called with each answer, from any thread
Start = Callable[[Told], Callable[[], None]]  # begins something that tells its answers; returns what calls it off


@dataclass(slots=True)
class Pending:
    """A guess that the engine has, and what will become of it."""

    job: Job
    result: asyncio.Future[Answer | SpecPairError]

    def settle(self, result: Answer | SpecPairError) -> None:
        if not self.result.done():  # the client may be gone
            self.result.set_result(result)

    def drop(self) -> None:
        """Nobody waits for it any more."""
        self.job.cancelled = True
        self.settle(_left())


class Asking:
    """Asks an engine on behalf of clients. Used in the event loop."""

    def __init__(self, outbox: Outbox) -> None:
        """`outbox`: the way that the engine's answers take."""
        self._outbox = outbox
        self._departures = Departures()

    def ask(
        self,
        engine: Engine,
        session: Session,
        position: int,
        drafts: Sequence[int] = (),
        *,
        proposals: Sequence[Weights] = (),
        next_in: float | None = None,
        goes_on: bool | None = None,
    ) -> Pending:
        """Hand a guess to the engine; the rest as for `Job`."""

        def done(result: Answer | SpecPairError) -> None:
            self._outbox.put(partial(pending.settle, result))

        guess = list(drafts), done
        job = Job(session, position, *guess, next_in=next_in, goes_on=goes_on, proposals=list(proposals))
        pending = Pending(job, asyncio.get_running_loop().create_future())
        engine.submit(job)
        return pending

    async def wait(self, asked: Sequence[Pending], receive: Receive) -> list[Answer | SpecPairError]:
        """What became of each. All of it is dropped when the client closes its connection, as `receive` tells."""

        def left() -> None:
            for pending in asked:
                pending.drop()

        with Waiting(self._departures, receive, left):
            return [await pending.result for pending in asked]

    async def answer(self, pending: Pending, receive: Receive) -> Answer:
        """The same for one. Raises what the engine answers."""
        (result,) = await self.wait((pending,), receive)
        if isinstance(result, SpecPairError):
            raise result
        return result

    async def last(self, start: Start, receive: Receive) -> Answer:
        """The last answer of a text that `start` begins, called off when the client hangs up. Raises what is told."""
        future: asyncio.Future[Answer | SpecPairError] = asyncio.get_running_loop().create_future()

        def settle(result: Answer | SpecPairError) -> None:
            if not future.done():  # the client may be gone
                future.set_result(result)

        def told(result: Answer | SpecPairError) -> None:
            if isinstance(result, SpecPairError) or result.finish_reason is not None:
                self._outbox.put(partial(settle, result))

        with Waiting(self._departures, receive, lambda: settle(_left())):
            call_off = start(told)
            try:
                result = await future
            finally:
                call_off()
        if isinstance(result, SpecPairError):
            raise result
        return result

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


def _left() -> InvalidRequest:
    return InvalidRequest("the connection was closed before the answer came")


def handed_in(engine: Engine, job: Job) -> Callable[[], None]:
    """Submit `job`; returns what calls it off."""
    engine.submit(job)

    def call_off() -> None:
        job.cancelled = True

    return call_off
