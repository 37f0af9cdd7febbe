"""Hands requests to the engine from the event loop, awaits the answers, drops requests of disconnected clients."""

from collections.abc import Sequence

from starlette.types import Receive

from speculation.errors import SpecPairError
from verifier_server.engine.engine import Engine
from verifier_server.engine.requests import Answer, Request
from verifier_server.generation.disconnects import disconnected, watched
from verifier_server.generation.outbox import Outbox


class EngineClient:
    """Sends requests of clients to an engine. Used in the event loop."""

    def __init__(self, outbox: Outbox) -> None:
        """`outbox`: carries the engine's answers to the event loop."""
        self._outbox = outbox

    async def results(
        self, engine: Engine, requests: Sequence[Request], receive: Receive
    ) -> list[Answer | SpecPairError]:
        """Hand requests to the engine together, so that they can share a pass. Returns the result of each.

        All are dropped once `receive` says that their client disconnected.
        """
        futures = []
        for request in requests:
            future, request.done = self._outbox.future()
            futures.append(future)

        def drop() -> None:
            for request in requests:
                request.cancelled = True
                request.done(disconnected())
            self._outbox.deliver()

        engine.submit(*requests)
        with watched(receive, drop):
            return [await future for future in futures]

    async def answer(self, engine: Engine, request: Request, receive: Receive) -> Answer:
        """The answer to one request, as in `results`. Raises the error that the engine answers with."""
        (result,) = await self.results(engine, (request,), receive)
        if isinstance(result, SpecPairError):
            raise result
        return result
