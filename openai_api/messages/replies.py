"""The replies of OpenAI's endpoints, whole and in chunks. Fields that a reply does not set are left out of its JSON."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FinishReason = Literal["stop", "length"]
Ended = Annotated[
    FinishReason | None,
    Field(description="stop: an end token or a stop string; length: a limit; null: more follows."),
]


class Reply(BaseModel):
    """Base of the replies and of their parts."""

    model_config = ConfigDict(frozen=True)

    def json_bytes(self) -> bytes:
        """The reply as JSON, with the fields that were given."""
        return self.model_dump_json(exclude_unset=True).encode()


class CompletionTokensDetails(Reply):
    accepted_prediction_tokens: Annotated[
        int, Field(description="Draft tokens from the client's prediction that were accepted.")
    ]
    rejected_prediction_tokens: Annotated[
        int, Field(description="Draft tokens from the client's prediction that were rejected.")
    ]


class Usage(Reply):
    """Tokens of the request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: CompletionTokensDetails


class Timings(Reply):
    """Times and draft tokens, by llama-server's names. The times are those of the whole request."""

    prompt_n: int
    prompt_ms: Annotated[float, Field(description="Milliseconds to the first token.")]
    prompt_per_second: float | None
    predicted_n: int
    predicted_ms: Annotated[float, Field(description="Milliseconds from the first token to the last.")]
    predicted_per_token_ms: float | None
    predicted_per_second: float | None
    draft_n: Annotated[int, Field(description="Draft tokens that the target judged.")]
    draft_n_accepted: Annotated[int, Field(description="Of these, those accepted.")]


class SpecDecode(Reply):
    """Draft tokens, by vLLM's names."""

    num_drafts: Annotated[int, Field(description="Drafts of which the target judged a token.")]
    num_draft_tokens: int
    num_accepted_tokens: int
    num_accepted_tokens_per_pos: Annotated[list[int], Field(description="Accepted ones by their place in the draft.")]


class _Generated(Reply):
    id: str
    object: str
    created: Annotated[int, Field(description="Seconds since 1970.")]
    model: str
    choices: list[Any]
    usage: Usage | None = None
    timings: Timings | None = None
    spec_decode: SpecDecode | None = None


class CompletionLogprobs(Reply):
    """Log probabilities of the target at temperature 1, without filters and penalties."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(Reply):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Ended


class Completion(_Generated):
    """A text, or a part of it in a stream."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]


class TopLogprob(Reply):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """Log probability of the target at temperature 1, without filters and penalties."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(Reply):
    content: list[TokenLogprob]
    refusal: None


class AssistantMessage(Reply):
    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(Reply):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Ended


class ChatCompletion(_Generated):
    """An answer."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class ChatDelta(Reply):
    """What is new in a message."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChunkChoice(Reply):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: Ended


class ChatChunk(_Generated):
    """A part of an answer in a stream."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]


class Model(Reply):
    """The model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: Annotated[int, Field(description="Tokens of the context.")]


class Models(Reply):
    """The models: one."""

    object: Literal["list"]
    data: list[Model]


def rate(count: int, ms: float) -> float | None:
    """Per second; None without a time."""
    return round(1e3 * count / ms, 3) if ms > 0.0 else None


def fields_of(reply: Reply) -> dict[str, Any]:
    """The fields that were given, to make another reply of them."""
    return {name: getattr(reply, name) for name in reply.model_fields_set}
