"""The entrance of every request: the router's own endpoints, or a node."""

import asyncio
from collections.abc import Callable, Mapping
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.router.passing.asked import Asked, asked
from gateway.router.passing.batch import verify_batch
from gateway.router.passing.headers import SESSION, value_of
from gateway.router.passing.joined import JOINED
from gateway.router.passing.passing import Passing
from gateway.router.upstream.connection import NodeLost
from specpair.http_service.keys.gate import Gate
from specpair.http_service.replies.failures import Failures, NotedSend
from specpair.http_service.replies.hang_up import HangUp
from specpair.protocol.errors import ShuttingDown, SpecPairError

OWN = frozenset(
    ("", "/health", "/live", "/ready", "/metrics", "/nodes", "/stats", "/docs", "/openapi.json")
)  # paths of the router itself; all others are passed on


class Entrance:
    """Middleware: passes requests on, but for those to the router itself, which another application serves."""

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        passing: Passing,
        failures: Failures,
        of_model: Mapping[str, Callable[[Request, str | None], Response]],
    ) -> None:
        """`of_model`: by path, replies about the nodes of one model."""
        self._app, self._gate, self._passing = app, gate, passing
        self._failures, self._of_model = failures, of_model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        written = scope.get("raw_path") or quote(scope["path"]).encode()
        target = written.partition(b"?")[0].removeprefix(scope.get("root_path", "").encode())
        what = asked(target, value_of(scope["headers"], SESSION), self._passing.forwarding.fleet.has_model)
        if (what.path in OWN or what.path.startswith("/docs/")) and what.model is None:
            await self._app(scope, receive, send)
            return
        noted = NotedSend(send)
        try:
            request = Request(scope, receive)
            self._gate.admit(request)
            body = await self._passing.forwarding.body_of(request)
            async with HangUp(receive):
                await self._serve(request, noted, what, body)
        except NodeLost:
            pass  # in the middle of a reply: the server closes the connection, since the reply is not complete
        except (SpecPairError, asyncio.CancelledError) as raised:
            if isinstance(raised, asyncio.CancelledError) and not self._passing.forwarding.stopping:
                raise
            if not noted.begun:
                error = raised if isinstance(raised, SpecPairError) else _STOPPING
                at = Request({**scope, "path": what.path})
                await (await self._failures.failed(at, error))(scope, receive, send)

    async def _serve(self, request: Request, send: Send, what: Asked, body: bytes) -> None:
        forwarding, method = self._passing.forwarding, request.method
        reply: Response
        if method == "GET" and what.path in self._of_model:
            reply = self._of_model[what.path](request, what.model)
        elif method == "POST" and what.path == "/verify/batch":
            reply = await verify_batch(forwarding, request, what, body)
        elif method == "GET" and what.model is None and what.path in JOINED:
            reply = await JOINED[what.path](forwarding, request)
        else:
            await self._passing.serve(request, send, what, body)
            return
        await reply(request.scope, request.receive, send)


_STOPPING = ShuttingDown("the router is being stopped: ask again when it is back")
