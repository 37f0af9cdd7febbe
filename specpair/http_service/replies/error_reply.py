"""The reply to a request that failed, with the headers that its error calls for."""

import math
from typing import Any

from specpair.http_service.replies.json_reply import JsonReply
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
