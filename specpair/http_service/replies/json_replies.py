"""The replies with JSON: of a result, and of an error, with the headers that the error calls for."""

import math
from typing import Any

from starlette.responses import JSONResponse

from specpair.protocol.errors import (
    ModelLoading,
    ModelMismatch,
    Overloaded,
    RateLimited,
    RequestTimeout,
    ShuttingDown,
    SpecPairError,
    TargetChanged,
    Unauthorized,
    UnsupportedEncoding,
    VerifierAway,
)

_FOR_NOW = (ModelLoading, ModelMismatch, Overloaded, RateLimited, ShuttingDown, TargetChanged, VerifierAway)


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
    elif isinstance(error, Unauthorized):
        headers = {"WWW-Authenticate": 'Bearer realm="specpair"'}
    elif isinstance(error, UnsupportedEncoding):
        headers = {"Accept-Encoding": "gzip, deflate"}
    elif isinstance(error, RequestTimeout):  # the rest of the body must not be read as the next request
        headers = {"Connection": "close"}
    return JsonReply(error.body() if body is None else body, status or error.status, headers)
