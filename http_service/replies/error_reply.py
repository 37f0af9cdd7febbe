"""The reply to a request that failed, with the headers that its error calls for."""

import math
from typing import Any

from http_service.replies.json_reply import JsonReply
from speculation.errors import (
    ModelLoading,
    Overloaded,
    RateLimited,
    RequestTimeout,
    ShuttingDown,
    SpecPairError,
    Unauthorized,
    UnsupportedEncoding,
)


def error_reply(error: SpecPairError, body: Any = None, status: int | None = None) -> JsonReply:
    """The reply to a request that ended with `error`. `body`, `status`: in place of the error's own."""
    headers = None
    if isinstance(error, ModelLoading | Overloaded | RateLimited | ShuttingDown):
        headers = {"Retry-After": str(math.ceil(error.details.get("retry_after", 1)))}
    elif isinstance(error, Unauthorized):
        headers = {"WWW-Authenticate": 'Bearer realm="specpair"'}
    elif isinstance(error, UnsupportedEncoding):
        headers = {"Accept-Encoding": "gzip, deflate"}
    elif isinstance(error, RequestTimeout):  # the rest of the body must not be read as the next request
        headers = {"Connection": "close"}
    return JsonReply(error.body() if body is None else body, status or error.status, headers)
