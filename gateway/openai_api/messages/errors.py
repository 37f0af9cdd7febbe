"""How OpenAI's endpoints report errors: 400 for an invalid request, always with a `param`.

Apart from `objects`, which a drafter without a server's packages reads prompts by.
"""

from typing import Any

from pydantic_core import to_json

from specpair.http_service.openapi.operation import OWN_ERRORS, ErrorForm
from specpair.http_service.replies.events import event_bytes
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
    if {"prompt_len", "context_length"} <= ours.keys():  # in the words by which agents know that they must shorten it
        ours["message"] += (
            f". This model's maximum context length is {ours['context_length']} tokens, and you requested "
            f"{ours['prompt_len']} tokens"
        )
    return {"error": {**ours, "code": _CODES.get(type(error), error.code), "param": ours.get("param")}}


def status(error: SpecPairError) -> int:
    """The HTTP status of an error."""
    return 400 if error.status == 422 else error.status


def _event(body: dict[str, Any], number: int) -> bytes:
    return event_bytes(to_json(body))


def _event_of_responses(body: dict[str, Any], number: int) -> bytes:
    """OpenAI documents the fields at the top; its server and client put them in `error`."""
    top = {name: body["error"][name] for name in ("code", "message", "param")}
    return event_bytes(to_json({"type": "error", **top, "sequence_number": number, **body}), "error")


FORM = ErrorForm(status, error_body, ("code", "type", "message", "param"), event=_event)
OF_RESPONSES = FORM._replace(event=_event_of_responses)  # where a stream is broken off: what is left of it is unknown


def error_form_of(path: str) -> ErrorForm:
    """How a service with OpenAI's endpoints reports errors at a path."""
    if path == "/v1/responses":
        return OF_RESPONSES
    return FORM if path == "/v1" or path.startswith("/v1/") else OWN_ERRORS
