"""What every request of the verifier passes: paths with a slash at the end, and cancellation at shutdown."""

import asyncio
from collections.abc import Callable

from fastapi import FastAPI
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.anthropic_api.errors import form_of
from specpair.http_service.app import without_slash
from specpair.http_service.replies.failures import Failures, NotedSend
from specpair.protocol.errors import ShuttingDown

FAILURES = Failures("verifier", form_of)


def add_to(app: FastAPI, stopping: Callable[[], bool]) -> None:
    """Register the middleware and the replies to errors. `stopping`: whether the process is shutting down."""
    app.add_middleware(Entrance, stopping=stopping)
    FAILURES.add_to(app)


class Entrance:
    """Middleware: each path works with a trailing slash, too. A request that is cancelled during shutdown gets a reply
    if possible, and is not logged as a fault."""

    def __init__(self, app: ASGIApp, stopping: Callable[[], bool]) -> None:
        self._app, self._stopping = app, stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, _until_cancelled(receive), send)
            return
        noted = NotedSend(send)
        try:
            await self._app(without_slash(scope) if scope["type"] == "http" else scope, receive, noted)
        except asyncio.CancelledError:
            if not self._stopping():
                raise
            if not noted.begun:
                error = ShuttingDown("the verifier is shutting down: ask again when it is back")
                reply = await FAILURES.failed(Request(scope), error)
                reply.headers["Connection"] = "close"
                await reply(scope, receive, send)


def _until_cancelled(receive: Receive) -> Receive:
    """`receive`, but a cancellation becomes the shutdown event: on a forced stop, uvicorn cancels the lifespan."""

    async def receive_or_end() -> Message:
        try:
            return await receive()
        except asyncio.CancelledError:
            return {"type": "lifespan.shutdown"}

    return receive_or_end
