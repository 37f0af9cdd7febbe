"""The replies of OpenAI's endpoints, whole and in chunks. Fields that a reply does not set are left out of its JSON."""

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


def shown(**example: Any) -> ConfigDict:
    """The configuration of a model with an example for the OpenAPI documents."""
    return ConfigDict(json_schema_extra={"examples": [example]})


class Reply(BaseModel):
    """Base of the replies and of their parts."""

    model_config = ConfigDict(frozen=True)

    def json_bytes(self) -> bytes:
        """The reply as JSON, with the fields that were given."""
        return self.model_dump_json(exclude_unset=True).encode()


class CompletionTokensDetails(Reply):
    """Kinds of generated tokens, and what became of the draft tokens from the client's prediction."""

    reasoning_tokens: Annotated[int, Field(description="Tokens of thoughts and their markers.")]
    accepted_prediction_tokens: Annotated[int, Field(description="Those accepted.")]
    rejected_prediction_tokens: Annotated[int, Field(description="Those rejected.")]


class PromptTokensDetails(Reply):
    """What was read of the prompts."""

    cached_tokens: Annotated[
        int, Field(description="Tokens that were not read, as the KV cache of another text had them.")
    ]


class TokenUsage(Reply):
    """Tokens of the request."""

    model_config = shown(
        prompt_tokens=4,
        completion_tokens=6,
        total_tokens=10,
        prompt_tokens_details={"cached_tokens": 0},
        completion_tokens_details={
            "reasoning_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    )

    prompt_tokens: Annotated[int, Field(description="Tokens of the prompts, each counted once.")]
    completion_tokens: Annotated[int, Field(description="Generated tokens of all choices.")]
    total_tokens: Annotated[int, Field(description="Both.")]
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class Timings(Reply):
    """Times and draft tokens, by llama-server's names. The times are those of the whole request."""

    model_config = shown(
        cache_n=0,
        prompt_n=4,
        prompt_ms=12.41,
        prompt_per_second=322.32,
        predicted_n=6,
        predicted_ms=15.58,
        predicted_per_token_ms=2.597,
        predicted_per_second=385.099,
        draft_n=2,
        draft_n_accepted=2,
    )

    cache_n: Annotated[int, Field(description="Tokens of the prompts that the KV cache of another text had.")]
    prompt_n: Annotated[int, Field(description="Tokens of the prompts that were read.")]
    prompt_ms: Annotated[float, Field(description="Milliseconds to the first token.")]
    prompt_per_second: Annotated[float | None, Field(description="`prompt_n` a second; null: not measured.")]
    predicted_n: Annotated[int, Field(description="Generated tokens.")]
    predicted_ms: Annotated[float, Field(description="Milliseconds from the first token to the last.")]
    predicted_per_token_ms: Annotated[
        float | None, Field(description="Milliseconds for each generated token; null: there is none.")
    ]
    predicted_per_second: Annotated[float | None, Field(description="Generated tokens a second; null: not measured.")]
    draft_n: Annotated[int, Field(description="Draft tokens that the target judged.")]
    draft_n_accepted: Annotated[int, Field(description="Of these, those accepted.")]


class SpecDecode(Reply):
    """Draft tokens, by vLLM's names."""

    model_config = shown(num_drafts=1, num_draft_tokens=2, num_accepted_tokens=2, num_accepted_tokens_per_pos=[1, 1])

    num_drafts: Annotated[int, Field(description="Drafts of which the target judged a token.")]
    num_draft_tokens: Annotated[int, Field(description="Draft tokens that the target judged.")]
    num_accepted_tokens: Annotated[int, Field(description="Of these, those accepted.")]
    num_accepted_tokens_per_pos: Annotated[list[int], Field(description="Accepted ones by their place in the draft.")]


class SpeculativeDecoding(Reply):
    """Acceptance in one text, by vLLM's names."""

    mean_acceptance_length: Annotated[
        float, Field(description="Tokens for each judged draft, with the target's own: 1 + accepted ones / drafts.")
    ]
    draft_acceptance_rate: Annotated[float, Field(description="Accepted draft tokens / judged ones; 0 without any.")]
    acceptance_histogram: Annotated[
        list[int], Field(description="Drafts with 0, 1, ... accepted tokens, up to `num_spec_tokens`.")
    ]
    num_spec_steps: Annotated[int, Field(description="Drafts of which the target judged a token.")]
    num_accepted_draft_tokens: Annotated[int, Field(description="Draft tokens that were accepted.")]
    num_draft_tokens: Annotated[int, Field(description="Draft tokens that the target judged.")]
    num_spec_tokens: Annotated[int, Field(description="The most that it judged of one draft.")]


class Metrics(Reply):
    """What vLLM tells of a request with one text."""

    speculative_decoding: Annotated[SpeculativeDecoding, Field(description="Acceptance of the draft tokens.")]


class _Generated(Reply):
    id: Annotated[str, Field(description="Another one for each request.", examples=["chatcmpl-5caf724642cf4b8c"])]
    object: Annotated[str, Field(description="What this is.")]
    created: Annotated[int, Field(description="Seconds since 1970.", examples=[1795452917])]
    model: Annotated[str, Field(description="The model that is served.", examples=["stdlib-target-q8_0"])]
    choices: Annotated[list[Any], Field(description="The texts.")]
    usage: Annotated[
        TokenUsage | None, Field(description="Null in the chunks of a stream that ends with the usage.")
    ] = None
    timings: Annotated[Timings | None, Field(description="In a stream, of the last chunk that has a choice.")] = None
    spec_decode: Annotated[SpecDecode | None, Field(description="As `timings`.")] = None
    metrics: Annotated[Metrics | None, Field(description="As `timings`, if the request has one text.")] = None


class CompletionLogprobs(Reply):
    """Log probabilities of the target at temperature 1, without filters and penalties."""

    tokens: Annotated[
        list[str],
        Field(description="The tokens; `bytes:\\xe4` is a part of a character, `token_id:7` a token without a text."),
    ]
    token_logprobs: Annotated[list[float], Field(description="Of each token.")]
    top_logprobs: Annotated[
        list[dict[str, float]],
        Field(description="The likeliest tokens at each position, and the one that was drawn, as in `tokens`."),
    ]
    text_offset: Annotated[list[int], Field(description="Characters of the text before each token.")]


class DecisionDetails(Reply):
    """Why a token was committed. All probabilities are 0 to 1; see `decisions` of the REST interface."""

    p: Annotated[float, Field(description="The target's probability of the token.")]
    draft: Annotated[str | None, Field(description="The draft token that was judged here, as text; null: none was.")]
    draft_p: Annotated[float | None, Field(description="The target's probability of the draft token.")]
    q: Annotated[float | None, Field(description="The drafter's probability of the draft token, where it is known.")]
    verdict: Annotated[str, Field(description="On the draft token: accepted or rejected; own: none was judged.")]


class ToldToken(Reply):
    """A token of the text, as `token_details` of the request asks for it."""

    id: Annotated[int, Field(description="Its id.")]
    text: Annotated[str, Field(description="Its characters; those of thoughts and calls as the model wrote them.")]
    source: Annotated[str | None, Field(description="Where it came from, as in the readout; null: not known.")]
    draft_source: Annotated[
        str | None,
        Field(
            description="Where the draft token came from that was judged at its place: model, lookup (in the text), "
            "prediction or grammar; null: there was none, or that is not known."
        ),
    ]
    decision: Annotated[DecisionDetails | None, Field(description="Why it was committed, if requested.")] = None


Told = Annotated[
    list[ToldToken] | None,
    Field(description="The tokens whose characters are complete with this, if `token_details` asks for them."),
]


class CompletionChoice(Reply):
    """A text, or a part of it."""

    index: Annotated[int, Field(description="Prompts in order, and the choices of each.", examples=[0])]
    text: Annotated[str, Field(description="The text, or what it has grown by.", examples=["string, text, 100"])]
    logprobs: Annotated[CompletionLogprobs | None, Field(description="If requested.")]
    finish_reason: Ended
    token_details: Told = None


class Completion(_Generated):
    """A text, or a part of it in a stream."""

    object: Annotated[Literal["text_completion"], Field(description="What this is.")]
    choices: Annotated[list[CompletionChoice], Field(description="The texts; in a chunk at most one of them.")]


class TopLogprob(Reply):
    """A token with its log probability."""

    token: Annotated[str, Field(description="The token's characters.")]
    logprob: Annotated[float, Field(description="The natural logarithm of its probability.")]
    bytes: Annotated[list[int], Field(description="The token's bytes.")]


class TokenLogprob(TopLogprob):
    """Log probability of the target at temperature 1, without filters and penalties."""

    top_logprobs: Annotated[list[TopLogprob], Field(description="The likeliest tokens at this position.")]


class ChatLogprobs(Reply):
    content: Annotated[list[TokenLogprob], Field(description="One for each token.")]
    refusal: Annotated[None, Field(description="Always null.")]


class CalledFunction(Reply):
    """A function and its arguments."""

    name: Annotated[str, Field(description="Its name.")]
    arguments: Annotated[str, Field(description="A JSON object, as text.")]


class CalledTool(Reply):
    """A call of a tool."""

    id: Annotated[str, Field(description="What the answer of the tool refers to.")]
    type: Annotated[Literal["function"], Field(description="Always a function.")]
    function: Annotated[CalledFunction, Field(description="The call.")]


class AssistantMessage(Reply):
    """The message that answers."""

    role: Annotated[Literal["assistant"], Field(description="Always the assistant.")]
    content: Annotated[
        str | None, Field(description="The answer; null if there are only calls.", examples=["1992(s):\n    try:\n"])
    ]
    refusal: Annotated[None, Field(description="Always null.")]
    reasoning_content: Annotated[str | None, Field(description="The thoughts before it, if there are any.")] = None
    tool_calls: Annotated[list[CalledTool] | None, Field(description="The calls, if there are any.")] = None


class ChatChoice(Reply):
    """One answer."""

    index: Annotated[int, Field(description="Which answer, from 0.", examples=[0])]
    message: Annotated[AssistantMessage, Field(description="The answer.")]
    logprobs: Annotated[ChatLogprobs | None, Field(description="If requested.")]
    finish_reason: Ended
    token_details: Told = None


class ChatCompletion(_Generated):
    """An answer."""

    object: Annotated[Literal["chat.completion"], Field(description="What this is.")]
    choices: Annotated[list[ChatChoice], Field(description="The answers.")]


class FunctionDelta(Reply):
    """What is new in a call."""

    name: Annotated[str | None, Field(description="In the first chunk of a call.")] = None
    arguments: Annotated[str, Field(description="What the JSON text of the arguments has grown by.")]


class ToolDelta(Reply):
    """A part of a call."""

    index: Annotated[int, Field(description="Which call, from 0.")]
    id: Annotated[str | None, Field(description="In the first chunk of a call.")] = None
    type: Annotated[Literal["function"] | None, Field(description="In the first chunk of a call.")] = None
    function: Annotated[FunctionDelta, Field(description="What is new.")]


class ChatDelta(Reply):
    """What is new in a message."""

    role: Annotated[Literal["assistant"] | None, Field(description="In the first chunk of a choice.")] = None
    content: Annotated[
        str | None, Field(description="What the answer has grown by.", examples=["1992(s):\n    try:\n"])
    ] = None
    reasoning_content: Annotated[str | None, Field(description="What the thoughts have grown by.")] = None
    tool_calls: Annotated[list[ToolDelta] | None, Field(description="One call that begins or grows.")] = None


class ChatChunkChoice(Reply):
    """A part of one answer."""

    index: Annotated[int, Field(description="Which answer, from 0.", examples=[0])]
    delta: Annotated[ChatDelta, Field(description="What is new.")]
    logprobs: Annotated[ChatLogprobs | None, Field(description="If requested.")]
    finish_reason: Ended
    token_details: Told = None


class ChatChunk(_Generated):
    """A part of an answer in a stream."""

    object: Annotated[Literal["chat.completion.chunk"], Field(description="What this is.")]
    choices: Annotated[
        list[ChatChunkChoice], Field(description="The answer that has grown; none in the chunk with the usage.")
    ]


class Model(Reply):
    """The model that is served."""

    id: Annotated[str, Field(description="Its name.", examples=["stdlib-target-q8_0"])]
    object: Annotated[Literal["model"], Field(description="What this is.")]
    created: Annotated[int, Field(description="When the service began, in seconds since 1970.", examples=[1795452917])]
    owned_by: Annotated[str, Field(description="Always specpair.", examples=["specpair"])]
    max_model_len: Annotated[int, Field(description="Tokens of the context.", examples=[2048])]
    type: Annotated[Literal["model"] | None, Field(description=f"What this is.{_ANTHROPIC}")] = None
    display_name: Annotated[str | None, Field(description=f"Its name.{_ANTHROPIC}")] = None
    created_at: Annotated[str | None, Field(description=f"When the service began.{_ANTHROPIC}")] = None
    lifecycle: Annotated[Literal["active"] | None, Field(description=f"Always active.{_ANTHROPIC}")] = None
    max_input_tokens: Annotated[int | None, Field(description=f"Tokens of the context.{_ANTHROPIC}")] = None
    max_tokens: Annotated[int | None, Field(description=f"Tokens of the context.{_ANTHROPIC}")] = None


class ModelList(Reply):
    """The models: one."""

    object: Annotated[Literal["list"], Field(description="What this is.")]
    data: Annotated[list[Model], Field(description="The one model.")]
    has_more: Annotated[Literal[False] | None, Field(description=f"Always false.{_ANTHROPIC}")] = None
    first_id: Annotated[str | None, Field(description=f"The model's name.{_ANTHROPIC}")] = None
    last_id: Annotated[str | None, Field(description=f"The model's name.{_ANTHROPIC}")] = None
