"""Middleware for web pages: refuses what foreign ones must not do, and lets those of allowed origins read replies."""

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from specpair.http_service.hosts import Hosts, host_of
from specpair.http_service.keys.access import Access
from specpair.http_service.origins import ANY, Origins
from specpair.http_service.replies.error_reply import error_reply
from specpair.protocol.errors import RequestError

EXPOSED = ("X-Session-Id", "X-Request-Id", "Retry-After")  # headers that pages of allowed origins may read


class KnownHosts:
    """Middleware: refuses requests and upgrades that do not name one host, and without a key those to names that a
    foreign page may have."""

    def __init__(self, app: ASGIApp, access: Access, hosts: Hosts) -> None:
        self._app, self._access, self._hosts = app, access, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            try:
                host = host_of(scope)
                if not self._access.keyed:
                    await self._hosts.check(host)
            except RequestError as error:
                if scope["type"] == "websocket":
                    await send({"type": "websocket.close"})  # before it was accepted: the server replies with 403
                else:
                    await error_reply(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _Cors(CORSMiddleware):
    """Starlette's, for the origins that `Origins` allows; also from public pages to private networks."""

    def __init__(self, app: ASGIApp, origins: Origins) -> None:
        super().__init__(
            app,
            allow_origins=(ANY,) if origins.any else (),
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            allow_private_network=True,
            expose_headers=EXPOSED,
        )
        self._origins = origins

    def is_allowed_origin(self, origin: str) -> bool:
        return self._origins.allows(origin)


def add_cors(app: FastAPI, origins: Origins) -> None:
    """Let pages of the allowed origins read replies. Without allowed origins, replies have no header of CORS."""
    if origins.allowed:
        app.add_middleware(_Cors, origins=origins)
