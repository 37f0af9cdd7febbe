"""Messages and errors as Anthropic's endpoints report them.

Fields that a reply does not set are left out of its JSON.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from gateway.openai_api.messages import errors as openai_errors
from gateway.openai_api.messages.replies import Metrics, Reply, SpecDecode, Timings
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

    type: Literal[
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "rate_limit_error",
        "overloaded_error",
        "api_error",
    ] = Field(description="The kind of error, which follows from the status.")
    message: str = Field(description="One sentence that says what is wrong and what to do.")
    code: str = Field(description="Stable name of the error.")
    param: str | None = Field(description="The field at fault.")


class MessageError(Reply):
    """The shape of errors in Anthropic's API."""

    type: Literal["error"] = Field(description="What this is.")
    error: MessageErrorDetail
    request_id: str | None = Field(description="That of the reply's header X-Request-Id.")


def error_body(error: SpecPairError) -> dict[str, Any]:
    """The JSON object of an error. It has the code and the parameter of OpenAI's endpoints, too."""
    status = openai_errors.status(error)
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    told = openai_errors.error_body(error)["error"] | {"type": kind}
    if "prompt_len" in told and "context_length" in told:  # in the words by which Claude Code knows what to do
        told["message"] += f" (prompt is too long: {told['prompt_len']} tokens > {told['context_length']} maximum)"
    context = current()
    return {"type": "error", "error": told, "request_id": None if context is None else context.request_id}


FORM = ErrorForm(openai_errors.status, error_body, ("code", "type", "message", "param"), MessageError)


def error_form_of(path: str) -> ErrorForm:
    """How a service with OpenAI's and Anthropic's endpoints reports errors at a path."""
    return FORM if path == "/v1/messages" or path.startswith("/v1/messages/") else openai_errors.error_form_of(path)


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]
Stopped = Annotated[
    StopReason | None,
    Field(
        description="end_turn: the model ended it; max_tokens and model_context_window_exceeded: it was cut; null: "
        "more follows."
    ),
]
StopSequence = Annotated[str | None, Field(description="The stop sequence that ended it.")]


class ContentText(Reply):
    """A text."""

    type: Literal["text"] = Field(description="What this is.")
    text: str = Field(description="The text.", examples=["1992(s):\n    try:\n"])


class ContentThinking(Reply):
    """The thoughts before an answer."""

    type: Literal["thinking"] = Field(description="What this is.")
    thinking: str = Field(description="The thoughts.")
    signature: str = Field(description="Always empty.")


class ContentToolUse(Reply):
    """A call of a tool."""

    type: Literal["tool_use"] = Field(description="What this is.")
    id: str = Field(description="What the answer of the tool refers to.")
    name: str = Field(description="The tool's name.")
    input: dict[str, Any] = Field(description="The arguments; in an event empty, as they follow.")


Content = ContentText | ContentThinking | ContentToolUse


class MessageUsage(Reply):
    """Tokens of a message."""

    input_tokens: int = Field(description="Tokens of the prompt that were read.")
    cache_read_input_tokens: int = Field(description="Those that the KV cache of another text had.")
    cache_creation_input_tokens: int = Field(description="Always 0.")
    output_tokens: int = Field(description="Generated tokens.")


class MessageReply(Reply):
    """An answer."""

    id: str = Field(description="Another one for each request.", examples=["msg_0b4d5a1e6f7c4c0f"])
    type: Literal["message"] = Field(description="What this is.")
    role: Literal["assistant"] = Field(description="Always the assistant.")
    model: str = Field(description="The model that is served.")
    content: list[Content] = Field(description="Thoughts, texts and calls, in the order of the text.")
    stop_reason: Stopped
    stop_sequence: StopSequence
    usage: MessageUsage
    timings: Timings | None = Field(None, description="When it has ended.")
    spec_decode: SpecDecode | None = Field(None, description="When it has ended.")
    metrics: Metrics | None = Field(None, description="When it has ended.")


class TokenCount(Reply):
    """Tokens of a conversation."""

    input_tokens: int = Field(description="How many its prompt has.")


class BlockGrowth(Reply):
    """The new part of a block."""

    type: Literal["text_delta", "thinking_delta", "input_json_delta"] = Field(description="Follows the block's kind.")
    text: str | None = Field(None, description="Of a text.", examples=["1992(s):\n    try:\n"])
    thinking: str | None = Field(None, description="Of thoughts.")
    partial_json: str | None = Field(None, description="Of a call: a part of the JSON of its arguments.")


class MessageEnding(Reply):
    """Why an answer has ended."""

    stop_reason: Stopped
    stop_sequence: StopSequence


def _event(name: str, model: str, says: str, **fields: Any) -> type[Reply]:
    kind: Any = Literal[name]
    fields = {"type": (kind, Field(description="The name of the event."))} | fields
    return create_model(model, __base__=Reply, __doc__=says, **fields)


_INDEX = (int, Field(description="Which block, from 0.", examples=[0]))
_NEW = (Content, Field(description="The block, still empty."))
_STATISTICS: dict[str, Any] = {
    "timings": (Timings | None, Field(None, description="Of the request.")),
    "spec_decode": (SpecDecode | None, Field(None, description="Of the text.")),
    "metrics": (Metrics | None, Field(None, description="Of the text.")),
}
# By name, the models of the data of events.
EVENTS: dict[str, type[Reply]] = {
    "message_start": _event("message_start", "MessageStart", "An answer begins.", message=(MessageReply, ...)),
    "ping": _event("ping", "Ping", "Nothing has happened for a while, and the answer goes on."),
    "content_block_start": _event(
        "content_block_start", "BlockStart", "A block begins.", index=_INDEX, content_block=_NEW
    ),
    "content_block_delta": _event(
        "content_block_delta", "BlockDelta", "A block grows.", index=_INDEX, delta=(BlockGrowth, ...)
    ),
    "content_block_stop": _event("content_block_stop", "BlockStop", "A block has ended.", index=_INDEX),
    "message_delta": _event(
        *("message_delta", "MessageDelta", "An answer has ended."),
        delta=(MessageEnding, ...),
        usage=(MessageUsage, ...),
        **_STATISTICS,
    ),
    "message_stop": _event("message_stop", "MessageStop", "The last event."),
    "error": MessageError,
}
