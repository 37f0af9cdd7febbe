"""Guesses as the event loop sees them: handed to the engine, awaited, and dropped when nobody waits any more."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from starlette.types import Receive

from speculation.acceptance.draft_probs import Weights
from speculation.errors import SpecPairError
from verifier_server.engine.engine import Engine
from verifier_server.engine.requests import Answer, Request
from verifier_server.generation.disconnects import DisconnectWatcher, WatchedRequest, hung_up
from verifier_server.generation.outbox import Outbox
from verifier_server.sessions import Session


@dataclass(slots=True)
class Pending:
    """A guess that the engine has, and what will become of it."""

    request: Request
    result: asyncio.Future[Answer | SpecPairError]

    def settle(self, result: Answer | SpecPairError) -> None:
        if not self.result.done():  # the client may be gone
            self.result.set_result(result)

    def drop(self) -> None:
        """Nobody waits for it any more."""
        self.request.cancelled = True
        self.settle(hung_up())


class EngineClient:
    """Asks an engine on behalf of clients. Used in the event loop."""

    def __init__(self, outbox: Outbox) -> None:
        """`outbox`: the way that the engine's answers take."""
        self._outbox = outbox
        self._departures = DisconnectWatcher()

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
        """Hand a guess to the engine; the rest as for `Request`."""

        def done(result: Answer | SpecPairError) -> None:
            self._outbox.put(partial(pending.settle, result))

        guess = list(drafts), done
        request = Request(session, position, *guess, next_in=next_in, goes_on=goes_on, proposals=list(proposals))
        pending = Pending(request, asyncio.get_running_loop().create_future())
        engine.submit(request)
        return pending

    async def wait(self, asked: Sequence[Pending], receive: Receive) -> list[Answer | SpecPairError]:
        """What became of each. All of it is dropped when the client closes its connection, as `receive` tells."""

        def left() -> None:
            for pending in asked:
                pending.drop()

        with WatchedRequest(self._departures, receive, left):
            return [await pending.result for pending in asked]

    async def answer(self, pending: Pending, receive: Receive) -> Answer:
        """The same for one. Raises what the engine answers."""
        (result,) = await self.wait((pending,), receive)
        if isinstance(result, SpecPairError):
            raise result
        return result
