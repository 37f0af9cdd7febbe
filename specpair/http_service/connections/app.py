"""The application of a service: what those of both ends have in common."""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from specpair.http_service.connections.connection import answered
from specpair.http_service.hosts import Hosts
from specpair.http_service.keys.gate import Gate, GatedRequests
from specpair.http_service.observability.metrics import RequestMetrics
from specpair.http_service.observability.observed_requests import ObservedRequests
from specpair.http_service.observability.routes import Routes
from specpair.http_service.openapi import docs_page
from specpair.http_service.openapi.operation import Json, Operation
from specpair.http_service.origins import Origins
from specpair.http_service.pages import KnownHosts, add_cors
from specpair.http_service.replies.failures import Failures
from specpair.http_service.replies.hang_up import unless_hung_up
from specpair.protocol.errors import SpecPairError


class App(FastAPI):
    """The application of a service."""

    def __init__(
        self,
        title: str,
        lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
        document: Callable[[], Json],
    ) -> None:
        """`document`: makes the OpenAPI document, once it is asked for."""
        # FastAPI's documentation pages load files from other hosts; `docs_page` serves one that does not.
        super().__init__(
            title=title, lifespan=lifespan, redirect_slashes=False, docs_url=None, redoc_url=None, openapi_url=None
        )
        self.openapi = document  # type: ignore[method-assign]
        self._direct: dict[str, ASGIApp] = {}  # by path
        docs_page.add_to(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        direct = self._direct.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        try:
            await (direct or super().__call__)(scope, receive, send)
        finally:
            answered(scope)

    def serve_directly(self, operation: Operation, failures: Failures) -> None:
        """Serve the POST requests of one operation beside FastAPI's routes, through the same layers. To be called when
        these are there.

        FastAPI's own layers and the routing take a fifth of the time of `/verify`: 230 us of the event loop's thread
        with them, 181 us without (the scripted engine; one core of a Xeon with AVX-512, FastAPI 0.165).
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
    ) -> None:
        """Add the layers that every service has, around those that were added before: whom it serves, and what it
        counts and logs. `paths`: those that are counted apart, as Starlette's routes write them."""
        self.add_middleware(GatedRequests, gate=gate, origins=origins)
        add_cors(self, origins)
        self.add_middleware(KnownHosts, access=gate.access, hosts=hosts)
        routes = Routes([*paths, "/docs", "/openapi.json"])
        self.add_middleware(ObservedRequests, metrics=metrics, routes=routes, access_log=access_log)
