"""The replies of OpenAI's endpoints, whole and in chunks. Fields that a reply does not set are left out of its JSON."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.openai_api.answer import AnswerReason

Ended = Annotated[
    AnswerReason | None,
    Field(
        description="stop: an end token or a stop string; tool_calls: the same, and a chat's answer calls tools; "
        "length: a limit; null: more follows.",
        examples=["length"],
    ),
]
_ANTHROPIC = " Only with the header `anthropic-version`."


def shown(example: str) -> ConfigDict:
    """The configuration of a model with an example in JSON for the OpenAPI documents."""
    return ConfigDict(json_schema_extra={"examples": [json.loads(example)]})


class Reply(BaseModel):
    """Base of the replies and of their parts."""

    model_config = ConfigDict(frozen=True)

    def json_bytes(self) -> bytes:
        """The reply as JSON, with the fields that were given."""
        return self.model_dump_json(exclude_unset=True).encode()


class CompletionTokensDetails(Reply):
    """Kinds of generated tokens, and what became of the draft tokens from the client's prediction."""

    reasoning_tokens: int = Field(description="Tokens of thoughts and their markers.")
    accepted_prediction_tokens: int = Field(description="Those accepted.")
    rejected_prediction_tokens: int = Field(description="Those rejected.")


class PromptTokensDetails(Reply):
    """The cached tokens of prompts."""

    cached_tokens: int = Field(description="Tokens that were not read, as the KV cache of another text had them.")


class TokenUsage(Reply):
    """Tokens of the request."""

    model_config = shown(
        '{"prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10, '
        '"prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": '
        '{"reasoning_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}}'
    )

    prompt_tokens: int = Field(description="Tokens of the prompts, each counted once.")
    completion_tokens: int = Field(description="Generated tokens of all choices.")
    total_tokens: int = Field(description="Both.")
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class Timings(Reply):
    """Times and draft tokens, by llama-server's names. The times are those of the whole request."""

    model_config = shown(
        '{"cache_n": 0, "prompt_n": 4, "prompt_ms": 12.41, "prompt_per_second": 322.32, "predicted_n": 6, '
        '"predicted_ms": 15.58, "predicted_per_token_ms": 2.597, "predicted_per_second": 385.099, "draft_n": 2, '
        '"draft_n_accepted": 2}'
    )

    cache_n: int = Field(description="Tokens of the prompts that the KV cache of another text had.")
    prompt_n: int = Field(description="Tokens of the prompts that were read.")
    prompt_ms: float = Field(description="Milliseconds to the first token.")
    prompt_per_second: float | None = Field(description="`prompt_n` a second; null: not measured.")
    predicted_n: int = Field(description="Generated tokens.")
    predicted_ms: float = Field(description="Milliseconds from the first token to the last.")
    predicted_per_token_ms: float | None = Field(description="Milliseconds for each generated token; null: none.")
    predicted_per_second: float | None = Field(description="Generated tokens a second; null: not measured.")
    draft_n: int = Field(description="Draft tokens that the target judged.")
    draft_n_accepted: int = Field(description="Of these, those accepted.")


class SpecDecode(Reply):
    """Draft tokens, by vLLM's names."""

    model_config = shown(
        '{"num_drafts": 1, "num_draft_tokens": 2, "num_accepted_tokens": 2, "num_accepted_tokens_per_pos": [1, 1]}'
    )

    num_drafts: int = Field(description="Drafts of which the target judged a token.")
    num_draft_tokens: int = Field(description="Draft tokens that the target judged.")
    num_accepted_tokens: int = Field(description="Of these, those accepted.")
    num_accepted_tokens_per_pos: list[int] = Field(description="Accepted ones by their place in the draft.")


class SpeculativeDecoding(Reply):
    """Acceptance in one text, by vLLM's names."""

    mean_acceptance_length: float = Field(
        description="Tokens for each judged draft, with the target's own: 1 + accepted ones / drafts."
    )
    draft_acceptance_rate: float = Field(description="Accepted draft tokens / judged ones; 0 without any.")
    acceptance_histogram: list[int] = Field(description="Drafts with 0, 1, ... accepted tokens, to `num_spec_tokens`.")
    num_spec_steps: int = Field(description="Drafts of which the target judged a token.")
    num_accepted_draft_tokens: int = Field(description="Draft tokens that were accepted.")
    num_draft_tokens: int = Field(description="Draft tokens that the target judged.")
    num_spec_tokens: int = Field(description="The most that it judged of one draft.")


class Metrics(Reply):
    """vLLM's metrics of a request for one text."""

    speculative_decoding: SpeculativeDecoding = Field(description="Acceptance of the draft tokens.")


class _Generated(Reply):
    id: str = Field(description="Another one for each request.", examples=["chatcmpl-5caf724642cf4b8c"])
    object: str = Field(description="What this is.")
    created: int = Field(description="Seconds since 1970.", examples=[1795452917])
    model: str = Field(description="The model that is served.", examples=["stdlib-target-q8_0"])
    choices: list[Any] = Field(description="The texts.")
    usage: TokenUsage | None = Field(None, description="Null in the chunks of a stream that ends with the usage.")
    timings: Timings | None = Field(None, description="In a stream, of the last chunk that has a choice.")
    spec_decode: SpecDecode | None = Field(None, description="As `timings`.")
    metrics: Metrics | None = Field(None, description="As `timings`, if the request has one text.")


class CompletionLogprobs(Reply):
    """Log probabilities of the target at temperature 1, without filters and penalties."""

    tokens: list[str] = Field(
        description="The tokens; `bytes:\\xe4` is a part of a character, `token_id:7` a token without a text."
    )
    token_logprobs: list[float] = Field(description="Of each token.")
    top_logprobs: list[dict[str, float]] = Field(
        description="The likeliest tokens at each position, and the one that was drawn, as in `tokens`."
    )
    text_offset: list[int] = Field(description="Characters of the text before each token.")


class DecisionDetails(Reply):
    """Why a token was committed. All probabilities are 0 to 1; see `decisions` of the REST interface."""

    p: float = Field(description="The target's probability of the token.")
    draft: str | None = Field(description="The draft token that was judged here, as text; null: none was.")
    draft_p: float | None = Field(description="The target's probability of the draft token.")
    q: float | None = Field(description="The drafter's probability of the draft token, where it is known.")
    verdict: str = Field(description="On the draft token: accepted or rejected; own: none was judged.")


class TokenInfo(Reply):
    """A token of the text, as `token_details` of the request asks for it."""

    id: int = Field(description="Its id.")
    text: str = Field(description="Its characters; those of thoughts and calls as the model wrote them.")
    source: str | None = Field(description="Where it came from, as in the readout; null: not known.")
    draft_source: str | None = Field(
        description="Where the draft token came from that was judged at its place: model, lookup (in the text), "
        "prediction or grammar; null: there was none, or that is not known."
    )
    decision: DecisionDetails | None = Field(None, description="Why it was committed, if requested.")


DetailedTokens = Annotated[
    list[TokenInfo] | None,
    Field(description="The tokens whose characters are complete with this, if `token_details` asks for them."),
]


class CompletionChoice(Reply):
    """A text, or a part of it."""

    index: int = Field(description="Prompts in order, and the choices of each.", examples=[0])
    text: str = Field(description="The text, or what it has grown by.", examples=["string, text, 100"])
    logprobs: CompletionLogprobs | None = Field(description="If requested.")
    finish_reason: Ended
    token_details: DetailedTokens = None


class Completion(_Generated):
    """A text, or a part of it in a stream."""

    object: Literal["text_completion"] = Field(description="What this is.")
    choices: list[CompletionChoice] = Field(description="The texts; in a chunk at most one of them.")


class TopLogprob(Reply):
    """A token with its log probability."""

    token: str = Field(description="The token's characters.")
    logprob: float = Field(description="The natural logarithm of its probability.")
    bytes: list[int] = Field(description="The token's bytes.")


class TokenLogprob(TopLogprob):
    """Log probability of the target at temperature 1, without filters and penalties."""

    top_logprobs: list[TopLogprob] = Field(description="The likeliest tokens at this position.")


class ChatLogprobs(Reply):
    content: list[TokenLogprob] = Field(description="One for each token.")
    refusal: None = Field(description="Always null.")


class CalledFunction(Reply):
    """A function and its arguments."""

    name: str = Field(description="Its name.")
    arguments: str = Field(description="A JSON object, as text.")


class CalledText(Reply):
    """A tool and its free text."""

    name: str | None = Field(None, description="Its name; in a stream in the first chunk of a call.")
    input: str = Field(description="The text; in a stream what it has grown by.")


class CalledTool(Reply):
    """A call of a tool."""

    id: str = Field(description="What the answer of the tool refers to.")
    type: Literal["function", "custom"] = Field(description="What is called.")
    function: CalledFunction | None = Field(None, description="The call of a function.")
    custom: CalledText | None = Field(None, description="The call of a tool that takes a free text.")


class AssistantMessage(Reply):
    """The message that answers."""

    role: Literal["assistant"] = Field(description="Always the assistant.")
    content: str | None = Field(description="The answer; null beside calls alone.", examples=["1992(s):\n    try:\n"])
    refusal: None = Field(description="Always null.")
    reasoning_content: str | None = Field(None, description="The thoughts before it, if there are any.")
    tool_calls: list[CalledTool] | None = Field(None, description="The calls, if there are any.")


class ChatChoice(Reply):
    """One answer."""

    index: int = Field(description="Which answer, from 0.", examples=[0])
    message: AssistantMessage = Field(description="The answer.")
    logprobs: ChatLogprobs | None = Field(description="If requested.")
    finish_reason: Ended
    token_details: DetailedTokens = None


class ChatCompletion(_Generated):
    """An answer."""

    object: Literal["chat.completion"] = Field(description="What this is.")
    choices: list[ChatChoice] = Field(description="The answers.")


class FunctionDelta(Reply):
    """New part of a call."""

    name: str | None = Field(None, description="In the first chunk of a call.")
    arguments: str = Field(description="What the JSON text of the arguments has grown by.")


class ToolDelta(Reply):
    """A part of a call."""

    index: int = Field(description="Which call, from 0.")
    id: str | None = Field(None, description="In the first chunk of a call.")
    type: Literal["function", "custom"] | None = Field(None, description="In the first chunk of a call.")
    function: FunctionDelta | None = Field(None, description="What is new in the call of a function.")
    custom: CalledText | None = Field(None, description="What is new in that of a tool which takes a free text.")


class ChatDelta(Reply):
    """New part of a message."""

    role: Literal["assistant"] | None = Field(None, description="In the first chunk of a choice.")
    content: str | None = Field(None, description="What the answer has grown by.", examples=["1992(s):\n    try:\n"])
    reasoning_content: str | None = Field(None, description="What the thoughts have grown by.")
    tool_calls: list[ToolDelta] | None = Field(None, description="One call that begins or grows.")


class ChatChunkChoice(Reply):
    """A part of one answer."""

    index: int = Field(description="Which answer, from 0.", examples=[0])
    delta: ChatDelta = Field(description="What is new.")
    logprobs: ChatLogprobs | None = Field(description="If requested.")
    finish_reason: Ended
    token_details: DetailedTokens = None


class ChatChunk(_Generated):
    """A part of an answer in a stream."""

    object: Literal["chat.completion.chunk"] = Field(description="What this is.")
    choices: list[ChatChunkChoice] = Field(description="The answer that has grown; none in the chunk with the usage.")


class Model(Reply):
    """The model that is served."""

    id: str = Field(description="Its name.", examples=["stdlib-target-q8_0"])
    object: Literal["model"] = Field(description="What this is.")
    created: int = Field(description="When the service began, in seconds since 1970.", examples=[1795452917])
    owned_by: str = Field(description="Always specpair.", examples=["specpair"])
    max_model_len: int = Field(description="Tokens of the context.", examples=[2048])
    type: Literal["model"] | None = Field(None, description=f"What this is.{_ANTHROPIC}")
    display_name: str | None = Field(None, description=f"Its name.{_ANTHROPIC}")
    created_at: str | None = Field(None, description=f"When the service began.{_ANTHROPIC}")
    lifecycle: Literal["active"] | None = Field(None, description=f"Always active.{_ANTHROPIC}")
    max_input_tokens: int | None = Field(None, description=f"Tokens of the context.{_ANTHROPIC}")
    max_tokens: int | None = Field(None, description=f"Tokens of the context.{_ANTHROPIC}")


class ModelList(Reply):
    """The models: one."""

    object: Literal["list"] = Field(description="What this is.")
    data: list[Model] = Field(description="The one model.")
    has_more: Literal[False] | None = Field(None, description=f"Always false.{_ANTHROPIC}")
    first_id: str | None = Field(None, description=f"The model's name.{_ANTHROPIC}")
    last_id: str | None = Field(None, description=f"The model's name.{_ANTHROPIC}")
