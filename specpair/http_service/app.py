"""The base of the applications of verifier and drafter."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specpair.http_service.connection import answered
from specpair.http_service.keys.access import Access
from specpair.http_service.keys.gate import Gate, GatedRequests
from specpair.http_service.observability.metrics import RequestMetrics
from specpair.http_service.observability.requests import ObservedRequests, Routes
from specpair.http_service.openapi.operation import Json, Operation
from specpair.http_service.replies.hang_up import unless_hung_up
from specpair.http_service.replies.json_replies import Failures, error_reply
from specpair.http_service.replies.static_files import add_docs
from specpair.http_service.web_pages import ANY, EXPOSED, Hosts, Origins, host_of
from specpair.protocol.errors import RequestError, SpecPairError


class App(FastAPI):
    """The application of a service."""

    def __init__(
        self,
        title: str,
        lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
        document: Callable[[], Json],
    ) -> None:
        """`document`: makes the OpenAPI document, once it is asked for."""
        # FastAPI's documentation pages load files from other hosts; `add_docs` adds one that does not.

        @asynccontextmanager
        async def watched(app: FastAPI) -> AsyncIterator[None]:
            async with lifespan(app):
                watching = asyncio.create_task(self.gate.watch())
                try:
                    yield
                finally:
                    watching.cancel()

        super().__init__(
            title=title, lifespan=watched, redirect_slashes=False, docs_url=None, redoc_url=None, openapi_url=None
        )
        self.openapi = document  # type: ignore[method-assign]
        self._direct: dict[str, ASGIApp] = {}  # by path
        self._layered: ASGIApp = self.unlayered
        self.metrics: RequestMetrics  # set by `add_layers`, and so are
        self.gate: Gate
        self.paths: list[str]  # that are counted apart
        add_docs(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._layered(scope, receive, send)
        finally:
            answered(scope)

    async def unlayered(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application without the layers of `add_layers`."""
        direct = self._direct.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        await (direct or super().__call__)(scope, receive, send)

    def serve_directly(self, operation: Operation, failures: Failures) -> None:
        """Serve the POST requests of one operation without FastAPI's routes and layers.

        They take a fifth of the time of `/verify`: 230 us of the event loop's thread with them, 181 us without (the
        scripted engine; one core of a Xeon with AVX-512, FastAPI 0.165).
        """

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            scope["app"] = self
            request = Request(scope, receive)
            try:
                reply = await unless_hung_up(operation.endpoint, request)
            except SpecPairError as error:
                reply = await failures.failed(request, error)
            await reply(scope, receive, send)

        served: ASGIApp = serve
        for layer, arguments, options in reversed(self.user_middleware):
            served = layer(served, *arguments, **options)
        self._direct[operation.path] = ServerErrorMiddleware(served, failures.faulty)

    def add_layers(
        self,
        gate: Gate,
        origins: Origins,
        hosts: Hosts,
        metrics: RequestMetrics,
        paths: Iterable[str],
        access_log: bool,
        *,
        strict: bool = False,
    ) -> None:
        """Add the layers of every service: access control, metrics and logs.

        `paths`: those that are counted apart, as Starlette's routes write them. `strict`: whether hints are refused.
        """
        self.metrics, self.gate, self.paths = metrics, gate, [*paths, "/docs", "/openapi.json"]
        app = guarded(self.unlayered, gate, origins, hosts)
        self._layered = ObservedRequests(app, metrics.request, Routes(self.paths), access_log, strict=strict)


def guarded(app: ASGIApp, gate: Gate, origins: Origins, hosts: Hosts) -> ASGIApp:
    """The layers of every service that refuse requests, around `app`."""
    app = GatedRequests(app, gate, origins)
    if origins.allowed:  # without allowed origins, replies have no header of CORS
        app = _Cors(app, origins)
    return _KnownHosts(app, gate.access, hosts)


class HeadRequests:
    """Answers HEAD requests: sends them on as GET requests, which end once the head of their reply is sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            await send(message)
            await send({"type": "http.response.body"})
            raise _HeadSent

        with suppress(_HeadSent):
            await self._app({**scope, "method": "GET"}, receive, send_head)


class _HeadSent(Exception):
    """The head of a reply is sent."""


class TrailingSlash:
    """Passes requests on without the slash at the end of the path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(without_slash(scope) if scope["type"] == "http" else scope, receive, send)


def without_slash(scope: Scope) -> Scope:
    """The scope of a request without the slash at the end of its path."""
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    if path.endswith("/") and path not in ("/", "/docs/"):  # the documentation page has relative addresses
        return {**scope, "path": scope["path"][:-1]}
    return scope


class _KnownHosts:
    """Middleware: refuses requests and upgrades that do not name one host; without a key, also unknown host names."""

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
    """Starlette's CORS middleware for the origins that `Origins` allows; also to private networks."""

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
