"""Errors as OpenAI's endpoints report them: 400 for what is wrong with a request, and always a `param`."""

from typing import Any

from starlette.responses import Response

from http_service.error_reply import error_reply
from speculation.errors import PromptTooLong, RateLimited, SpecPairError, Unauthorized

# Codes that programs look for.
_CODES: dict[type[SpecPairError], str] = {
    PromptTooLong: "context_length_exceeded",
    RateLimited: "rate_limit_exceeded",
    Unauthorized: "invalid_api_key",
}


def error_body(error: SpecPairError) -> dict[str, Any]:
    """The JSON object of an error."""
    ours = error.body()["error"]
    return {"error": {**ours, "code": _CODES.get(type(error), error.code), "param": ours.get("param")}}


def openai_error(error: SpecPairError) -> Response:
    """The reply to a request that failed."""
    return error_reply(error, error_body(error), 400 if error.status == 422 else error.status)
