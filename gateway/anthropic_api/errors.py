"""Errors as Anthropic's endpoints report them, and which endpoints report them so."""

from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.openai_api.messages import errors as openai_errors
from gateway.openai_api.messages.replies import Reply
from specpair.http_service.observability.logs import current
from specpair.http_service.openapi.operation import ErrorForm
from specpair.protocol.errors import SpecPairError

_TYPES = {  # by status
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class MessageErrorDetail(Reply):
    """What is wrong."""

    type: Annotated[
        Literal[
            "invalid_request_error",
            "authentication_error",
            "permission_error",
            "not_found_error",
            "request_too_large",
            "rate_limit_error",
            "overloaded_error",
            "api_error",
        ],
        Field(description="The kind of error, which follows from the status."),
    ]
    message: Annotated[str, Field(description="One sentence that says what is wrong and what to do.")]
    code: Annotated[str, Field(description="Stable name of the error.")]
    param: Annotated[str | None, Field(description="The field at fault.")]


class MessageError(Reply):
    """The shape of errors in Anthropic's API."""

    type: Annotated[Literal["error"], Field(description="What this is.")]
    error: MessageErrorDetail
    request_id: Annotated[str | None, Field(description="That of the reply's header X-Request-Id.")]


def error_body(error: SpecPairError) -> dict[str, Any]:
    """The JSON object of an error, which has the code and the parameter that OpenAI's endpoints tell, too."""
    status = openai_errors.status(error)
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    told = openai_errors.error_body(error)["error"] | {"type": kind}
    if "prompt_len" in told and "context_length" in told:  # in the words by which Claude Code knows what to do
        told["message"] += f" (prompt is too long: {told['prompt_len']} tokens > {told['context_length']} maximum)"
    context = current()
    return {"type": "error", "error": told, "request_id": None if context is None else context.request_id}


FORM = ErrorForm(openai_errors.status, error_body, ("code", "type", "message", "param"), MessageError)


def form_of(path: str) -> ErrorForm:
    """How a service with OpenAI's and Anthropic's endpoints reports errors at a path."""
    return FORM if path == "/v1/messages" or path.startswith("/v1/messages/") else openai_errors.form_of(path)
