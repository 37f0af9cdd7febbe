"""The entrance of every request: finds its endpoint, and replies with an error where that raises or is cancelled."""

import asyncio
from collections.abc import Callable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from http_service.error_reply import error_reply
from http_service.json_reply import JsonReply
from http_service.observability.request_context import HEADER, current
from speculation.errors import (
    InternalError,
    MethodNotAllowed,
    NotFound,
    RequestError,
    ShuttingDown,
    SpecPairError,
)
from verifier_server.api import routes


def add_to(app: FastAPI, stopping: Callable[[], bool]) -> None:
    """Register the middleware and the replies to errors. `stopping`: whether the process is shutting down."""
    app.add_middleware(Entrance, stopping=stopping)
    app.add_exception_handler(SpecPairError, _reply_error)
    app.add_exception_handler(HTTPException, _reply_http)
    app.add_exception_handler(Exception, _reply_unexpected)


class Entrance:
    """Middleware: each path works with a trailing slash, too, and `/verify` is served here.

    FastAPI's routing would cost more time than that endpoint. A request that is cancelled during shutdown gets a reply
    if possible, and is not logged as a fault.
    """

    def __init__(self, app: ASGIApp, stopping: Callable[[], bool]) -> None:
        self._app, self._stopping = app, stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, _until_cancelled(receive), send)
            return
        begun = False

        async def send_noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._serve(scope, receive, send_noted)
        except asyncio.CancelledError:
            if not self._stopping():
                raise
            if not begun:
                error = ShuttingDown("the verifier is shutting down: ask again when it is back")
                await JsonReply(error.body(), error.status, {"Connection": "close"})(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            if path.endswith("/") and path not in ("/", "/docs/"):  # the documentation page has relative addresses
                path, scope = path[:-1], {**scope, "path": scope["path"][:-1]}
            if path == "/verify":
                await (await _verify(Request(scope, receive)))(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _until_cancelled(receive: Receive) -> Receive:
    """`receive`, but a cancellation becomes the shutdown event: on a forced stop, uvicorn cancels the lifespan."""

    async def receive_or_end() -> Message:
        try:
            return await receive()
        except asyncio.CancelledError:
            return {"type": "lifespan.shutdown"}

    return receive_or_end


async def _verify(request: Request) -> Response:
    if request.method != "POST":
        return await _reply_http(request, HTTPException(405, headers={"Allow": "POST"}))
    try:
        return await routes.verify(request)
    except SpecPairError as error:
        return await _reply_error(request, error)


async def _reply_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SpecPairError)
    return error_reply(error)


async def _reply_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known: SpecPairError
    if error.status_code == 405:
        known = MethodNotAllowed(f"{request.method} is not possible on {request.url.path}")
    elif error.status_code == 404:
        known = NotFound(f"there is nothing at {request.url.path}: see /docs for what there is")
    else:
        known = RequestError(str(error.detail))
    return JsonReply(known.body(), status_code=error.status_code, headers=error.headers)


async def _reply_unexpected(_request: Request, error: Exception) -> Response:
    reply = await _reply_error(
        _request, InternalError(f"a fault of the verifier ({type(error).__name__}): see its log")
    )
    if (context := current()) is not None:  # this reply is sent outside of `ObservedRequests`
        reply.headers[HEADER.decode()] = context.request_id
    return reply
