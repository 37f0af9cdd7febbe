"""Responses as they are sent, and their events. Fields that a reply does not set are left out of its JSON."""

from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.openai_api.messages.replies import Metrics, Reply, SpecDecode, Timings, TokenLogprob

ItemStatus = Annotated[
    Literal["in_progress", "completed", "incomplete"], Field(description="incomplete: the text was cut.")
]
ResponseStatus = Annotated[
    Literal["in_progress", "completed", "incomplete", "failed"],
    Field(description="incomplete: the text was cut at a limit."),
]
ItemId = Annotated[str, Field(description="The item's id.", examples=["msg_6c1f8f0c8f0a4f6d00"])]


class OutputText(Reply):
    """A text."""

    type: Literal["output_text"] = Field(description="What this is.")
    text: str = Field(description="The text.", examples=["1992(s):\n    try:\n"])
    annotations: list[Any] = Field(description="Always empty.")
    logprobs: list[TokenLogprob] = Field(description="Those of its tokens, if requested.", examples=[[]])


class OutputMessage(Reply):
    """A message that answers."""

    type: Literal["message"] = Field(description="What this is.")
    id: ItemId
    status: ItemStatus
    role: Literal["assistant"] = Field(description="Always the assistant.")
    content: list[OutputText] = Field(description="One text.")


class OutputThoughts(Reply):
    """Thoughts."""

    type: Literal["reasoning_text"] = Field(description="What this is.")
    text: str = Field(description="The thoughts.")


class OutputReasoning(Reply):
    """The thoughts before an answer."""

    type: Literal["reasoning"] = Field(description="What this is.")
    id: ItemId
    status: ItemStatus
    summary: list[Any] = Field(description="Always empty: thoughts are told in full.")
    content: list[OutputThoughts] = Field(description="The thoughts.")


class OutputCall(Reply):
    """A call of a tool."""

    type: Literal["function_call"] = Field(description="What this is.")
    id: ItemId
    status: ItemStatus
    call_id: str = Field(description="What the answer of the tool refers to.")
    name: str = Field(description="The tool's name.")
    namespace: str | None = Field(None, description="The tool's namespace, if it is in one.")
    arguments: str = Field(description="A JSON object, as text.")


class OutputTextCall(Reply):
    """A call of a tool with a free text."""

    type: Literal["custom_tool_call"] = Field(description="What this is.")
    id: ItemId
    status: ItemStatus
    call_id: str = Field(description="What the answer of the tool refers to.")
    name: str = Field(description="The tool's name.")
    namespace: str | None = Field(None, description="The tool's namespace, if it is in one.")
    input: str = Field(description="The text.")


OutputItem = OutputMessage | OutputReasoning | OutputCall | OutputTextCall


class InputTokensDetails(Reply):
    """Cached tokens of the prompt."""

    cached_tokens: int = Field(description="Tokens that the KV cache of another text had.")
    cache_write_tokens: int = Field(description="Always 0.")


class OutputTokensDetails(Reply):
    """Kinds of generated tokens."""

    reasoning_tokens: int = Field(description="Those of thoughts.")


class ResponseUsage(Reply):
    """Tokens of a response."""

    input_tokens: int = Field(description="Tokens of the prompt.")
    input_tokens_details: InputTokensDetails
    output_tokens: int = Field(description="Generated tokens.")
    output_tokens_details: OutputTokensDetails
    total_tokens: int = Field(description="Both.")


class ResponseError(Reply):
    """Why a response failed."""

    code: Literal["server_error"] = Field(description="Always server_error.")
    type: str = Field(description="The code of the error.")
    message: str = Field(description="What went wrong, and what to do.")


class IncompleteDetails(Reply):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"] = Field(description="A limit: the request's, or the context.")


class ResponseObject(Reply):
    """A response."""

    id: str = Field(description="Another one for each request.", examples=["resp_6c1f8f0c8f0a4f6d"])
    object: Literal["response"] = Field(description="What this is.")
    created_at: int = Field(description="Seconds since 1970.", examples=[1795452917])
    completed_at: int | None = Field(description="Seconds since 1970; null: it has not ended.")
    status: ResponseStatus
    background: Literal[False] = Field(description="Always false.")
    error: ResponseError | None = Field(description="Why it failed.")
    incomplete_details: IncompleteDetails | None = Field(description="Why it is incomplete.")
    instructions: str | None = Field(description="Those of the request.")
    max_output_tokens: int | None = Field(description="That of the request.")
    metadata: dict[str, str] = Field(description="That of the request.")
    model: str = Field(description="The model that is served.", examples=["stdlib-target-q8_0"])
    output: list[OutputItem] = Field(description="Thoughts, messages and calls, in the order of the text.")
    parallel_tool_calls: bool = Field(description="Whether several tools may be called at once.")
    previous_response_id: str | None = Field(description="The response that it goes on from.")
    reasoning: dict[str, Any] = Field(description="That of the request.")
    store: bool = Field(description="Whether it is kept for a while.")
    temperature: float = Field(description="That of the request.", examples=[0.8])
    text: dict[str, Any] = Field(description="That of the request.", examples=[{"format": {"type": "text"}}])
    tool_choice: Any = Field(description="That of the request.", examples=["auto"])
    tools: list[Any] = Field(description="Those of the request.")
    top_logprobs: int = Field(description="That of the request.", examples=[0])
    top_p: float = Field(description="That of the request.", examples=[1.0])
    truncation: Literal["disabled"] = Field(description="Always disabled.")
    usage: ResponseUsage | None = Field(description="Null until it has ended.")
    timings: Timings | None = Field(None, description="When it has ended.")
    spec_decode: SpecDecode | None = Field(None, description="When it has ended.")
    metrics: Metrics | None = Field(None, description="When it has ended.")


class ResponseDeleted(Reply):
    """A response that is no longer kept."""

    id: str = Field(description="Its id.")
    object: Literal["response"] = Field(description="What it was.")
    deleted: Literal[True] = Field(description="Always true.")


OutputIndex = Annotated[int, Field(description="Which item of the output, from 0.", examples=[0])]
ContentIndex = Annotated[int, Field(description="Always 0.", examples=[0])]


class _Event(Reply):
    type: str = Field(description="The name of the event.")
    sequence_number: int = Field(description="Which event of the stream, from 0.")


class ResponseEvent(_Event):
    """The response, when it begins and when it has ended."""

    response: ResponseObject


class ItemEvent(_Event):
    """An item of the output, when it begins and when it has ended."""

    output_index: OutputIndex
    item: OutputItem = Field(description="The item.")


class PartEvent(_Event):
    """The text in an item, when it begins and when it has ended."""

    item_id: ItemId
    output_index: OutputIndex
    content_index: ContentIndex
    part: OutputText | OutputThoughts = Field(description="The text.")


class DeltaEvent(_Event):
    """The new part of a text or of a call's arguments."""

    item_id: ItemId
    output_index: OutputIndex
    content_index: int | None = Field(None, description="Always 0; not in a call.")
    delta: str = Field(description="What is new.", examples=["1992(s):\n    try:\n"])
    logprobs: list[TokenLogprob] | None = Field(None, description="With a text: those of the new tokens.")


class DoneEvent(_Event):
    """A text or the arguments of a call, when they have ended."""

    item_id: ItemId
    output_index: OutputIndex
    content_index: int | None = Field(None, description="Always 0; not in a call.")
    text: str | None = Field(None, description="The whole text.")
    logprobs: list[TokenLogprob] | None = Field(None, description="With a text: those of all tokens.")
    name: str | None = Field(None, description="Of the tool that is called.")
    arguments: str | None = Field(None, description="The whole arguments of a call.")
    input: str | None = Field(None, description="The whole free text of a call.")


EVENTS: dict[str, type[Reply]] = {
    "response.created": ResponseEvent,
    "response.in_progress": ResponseEvent,
    "response.output_item.added": ItemEvent,
    "response.content_part.added": PartEvent,
    "response.reasoning_text.delta": DeltaEvent,
    "response.reasoning_text.done": DoneEvent,
    "response.output_text.delta": DeltaEvent,
    "response.output_text.done": DoneEvent,
    "response.function_call_arguments.delta": DeltaEvent,
    "response.function_call_arguments.done": DoneEvent,
    "response.custom_tool_call_input.delta": DeltaEvent,
    "response.custom_tool_call_input.done": DoneEvent,
    "response.content_part.done": PartEvent,
    "response.output_item.done": ItemEvent,
    "response.completed": ResponseEvent,
    "response.incomplete": ResponseEvent,
    "response.failed": ResponseEvent,
}
