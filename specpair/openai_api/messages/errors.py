"""Errors as OpenAI's endpoints report them: 400 for what is wrong with a request, and always a `param`."""

from typing import Any

from specpair.http_service.openapi.operation import OWN_ERRORS, ErrorForm
from specpair.protocol.errors import PromptTooLong, RateLimited, SpecPairError, Unauthorized

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


def status(error: SpecPairError) -> int:
    """The HTTP status of an error."""
    return 400 if error.status == 422 else error.status


FORM = ErrorForm(status, error_body, ("code", "type", "message", "param"))


def form_of(path: str) -> ErrorForm:
    """How a service with OpenAI's endpoints reports errors at a path."""
    return FORM if path == "/v1" or path.startswith("/v1/") else OWN_ERRORS
