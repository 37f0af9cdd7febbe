"""An application that puts limits on the connections of its server, also where nobody configures the server."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from http_service.connections.guarded import guard_server


class App(FastAPI):
    """The application of a service: under uvicorn, its connections have limits, however uvicorn was started."""

    def __init__(self, title: str, lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]]) -> None:
        # FastAPI's documentation pages load files from other hosts; `docs_page` serves one that does not.
        super().__init__(
            title=title, lifespan=lifespan, redirect_slashes=False, docs_url=None, redoc_url=None, openapi_url=None
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            guard_server(receive)
        await super().__call__(scope, receive, send)
