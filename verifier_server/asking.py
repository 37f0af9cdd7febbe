"""Guesses as the event loop sees them: handed to the engine, awaited, and dropped when nobody waits any more."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial

from starlette.types import Receive

from speculation.errors import InvalidRequest, SpecPairError
from verifier_server.departures import Departures, Waiting
from verifier_server.engine import Engine
from verifier_server.jobs import Answer, Job
from verifier_server.outbox import Outbox
from verifier_server.sessions import Session


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
        until_end: bool = False,
        next_in: float | None = None,
        goes_on: bool | None = None,
    ) -> Answer:
        """The answer to a guess, with `until_end` the last one; the rest as for `Job`. Raises what the engine answers.

        The guess is dropped when the client closes its connection, as `receive` tells.
        """
        future: asyncio.Future[Answer | SpecPairError] = asyncio.get_running_loop().create_future()

        def settle(result: Answer | SpecPairError) -> None:
            if not future.done():  # the client may be gone
                future.set_result(result)

        def done(result: Answer | SpecPairError) -> None:
            if not until_end or isinstance(result, SpecPairError) or result.finish_reason is not None:
                self._outbox.put(partial(settle, result))

        job = Job(session, position, list(drafts), done, until_end, next_in, goes_on)

        def left() -> None:
            job.cancelled = True
            settle(InvalidRequest("the connection was closed before the answer came"))

        with Waiting(self._departures, receive, left):
            engine.submit(job)
            result = await future
        if isinstance(result, SpecPairError):
            raise result
        return result

    async def answers(self, engine: Engine, session: Session) -> AsyncGenerator[Answer]:
        """Plain decoding to the end, pass by pass. Closing the iterator does not stop it: forget the session."""
        results: asyncio.Queue[Answer | SpecPairError] = asyncio.Queue()

        def done(result: Answer | SpecPairError) -> None:
            self._outbox.put(partial(results.put_nowait, result))

        engine.submit(Job(session, session.prompt_len, [], done, until_end=True))
        finished = False
        while not finished:
            result = await results.get()
            if isinstance(result, SpecPairError):
                raise result
            finished = result.finish_reason is not None
            yield result
            if not results.empty():  # an engine faster than this stream must not keep the loop from everything else
                await asyncio.sleep(0)
