"""Hands requests to the engine from the event loop, awaits the answers, drops requests of disconnected clients."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from starlette.types import Receive

from speculation.acceptance.draft_probs import Weights
from speculation.errors import SpecPairError
from verifier_server.engine.engine import Engine
from verifier_server.engine.requests import Answer, Request
from verifier_server.generation.disconnects import DisconnectWatcher, WatchedRequest, disconnected
from verifier_server.generation.outbox import Outbox
from verifier_server.sessions import Session


@dataclass(slots=True)
class Pending:
    """A request that was handed to the engine, and its future result."""

    request: Request
    result: asyncio.Future[Answer | SpecPairError]

    def settle(self, result: Answer | SpecPairError) -> None:
        """Set the result, unless the request was dropped."""
        if not self.result.done():
            self.result.set_result(result)

    def drop(self) -> None:
        """Cancel the request, whose client has disconnected."""
        self.request.cancelled = True
        self.settle(disconnected())


class EngineClient:
    """Sends requests of clients to an engine. Used in the event loop."""

    def __init__(self, outbox: Outbox) -> None:
        """`outbox`: carries the engine's answers to the event loop."""
        self._outbox = outbox
        self._watcher = DisconnectWatcher()

    def prepare(
        self,
        session: Session,
        position: int,
        drafts: Sequence[int] = (),
        *,
        proposals: Sequence[Weights] = (),
        next_in: float | None = None,
        self_continue: bool | None = None,
    ) -> Pending:
        """A request that is not handed to the engine yet. The arguments are those of `Request`."""

        def done(result: Answer | SpecPairError) -> None:
            self._outbox.put(partial(pending.settle, result))

        draft = list(drafts), done
        request = Request(
            session, position, *draft, next_in=next_in, self_continue=self_continue, proposals=list(proposals)
        )
        pending = Pending(request, asyncio.get_running_loop().create_future())
        return pending

    async def results(
        self, engine: Engine, requests: Sequence[Pending], receive: Receive
    ) -> list[Answer | SpecPairError]:
        """Hand requests to the engine together, so that they can share a pass. Returns the result of each.

        All are dropped once `receive` says that their client disconnected.
        """

        def drop() -> None:
            for pending in requests:
                pending.drop()

        engine.submit(*(pending.request for pending in requests))
        with WatchedRequest(self._watcher, receive, drop):
            return [await pending.result for pending in requests]

    async def answer(self, engine: Engine, pending: Pending, receive: Receive) -> Answer:
        """The answer to one request, as in `results`. Raises the error that the engine answers with."""
        (result,) = await self.results(engine, (pending,), receive)
        if isinstance(result, SpecPairError):
            raise result
        return result
