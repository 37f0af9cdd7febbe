"""The replies with JSON: of a result, of an error, and to requests that no endpoint answered."""

import math
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import Message, Send

from specpair.http_service.observability.logs import HEADER, current
from specpair.http_service.openapi.operation import ErrorForm
from specpair.protocol import errors
from specpair.protocol.errors import SpecPairError

_FOR_NOW = (
    *(errors.ModelLoading, errors.ModelMismatch, errors.Overloaded, errors.RateLimited, errors.ShuttingDown),
    *(errors.TargetChanged, errors.VerifierAway),
)


class JsonReply(JSONResponse):
    """A reply with a JSON body, given as bytes or as the object to encode.

    It ends with a newline, as a text does: after `curl`, the shell's prompt then begins a line of its own.
    """

    def render(self, content: Any) -> bytes:
        return (content if isinstance(content, bytes) else super().render(content)) + b"\n"


def error_reply(error: SpecPairError, body: Any = None, status: int | None = None) -> JsonReply:
    """The reply to a request that ended with `error`. `body`, `status`: in place of the error's own."""
    headers = None
    if isinstance(error, _FOR_NOW):
        headers = {"Retry-After": str(math.ceil(error.details.get("retry_after", 1)))}
    elif isinstance(error, errors.Unauthorized):
        headers = {"WWW-Authenticate": 'Bearer realm="specpair"'}
    elif isinstance(error, errors.UnsupportedEncoding):
        headers = {"Accept-Encoding": "gzip, deflate"}
    elif isinstance(error, errors.RequestTimeout):  # the rest of the body must not be read as the next request
        headers = {"Connection": "close"}
    return JsonReply(error.body() if body is None else body, status or error.status, headers)


class Failures:
    def __init__(self, service: str, error_form_of: Callable[[str], ErrorForm]) -> None:
        """`service`: its name in errors.
        `error_form_of`: how errors are reported at a path.
        """
        self._service, self._error_form_of = service, error_form_of

    def add_to(self, app: FastAPI) -> None:
        app.add_exception_handler(SpecPairError, self.failed)
        app.add_exception_handler(HTTPException, self.refused)
        app.add_exception_handler(Exception, self.faulty)

    async def failed(self, request: Request, error: Exception) -> Response:
        """The reply to a request that raised a SpecPairError."""
        assert isinstance(error, SpecPairError)
        form = self._error_form_of(_path(request))
        return error_reply(error, form.body(error), form.status(error))

    async def refused(self, request: Request, error: Exception) -> Response:
        """The reply to an unknown path or method, and to a WebSocket."""
        assert isinstance(error, HTTPException)
        path, status, headers = request.url.path, error.status_code, {**(error.headers or {})}
        known: SpecPairError
        if request.method == "GET" and "Sec-WebSocket-Key" in request.headers:
            known = errors.NoWebSocket(
                f"{path} takes no WebSocket: POST the request, with stream true for events as they come"
            )
            status, headers = known.status, {"Upgrade": "HTTP/1.1", "Connection": "Upgrade"}  # RFC 9110 wants them
        elif status == 405:
            known = errors.MethodNotAllowed(f"{request.method} is not possible on {path}")
            routes = (each for each in request.app.routes if each.matches(request.scope)[0] is not Match.NONE)
            headers["Allow"] = ", ".join(sorted({method for each in routes for method in each.methods}))
        elif status == 404:
            known = errors.NotFound(f"there is nothing at {path}: see /docs for what there is")
        else:
            known = errors.RequestError(str(error.detail))
        reply = error_reply(known, self._error_form_of(_path(request)).body(known), status)
        reply.headers.update(headers)
        return reply

    async def faulty(self, request: Request, error: Exception) -> Response:
        """The reply to a request that met an internal fault."""
        reply = await self.failed(
            request, errors.InternalError(f"a fault of the {self._service} ({type(error).__name__}): see its log")
        )
        if (context := current()) is not None:  # this reply is sent outside of `ObservedRequests`
            reply.headers[HEADER.decode()] = context.request_id
        return reply


def _path(request: Request) -> str:
    """The path of a request as in the routes, also behind a proxy that adds a prefix."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", ""))


class NotedSend:
    """An ASGI `send`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def __call__(self, message: Message) -> None:
        self.begun = True
        await self._send(message)
