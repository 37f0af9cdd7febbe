"""Response models of the protocol, for the verifier's OpenAPI document and for tests. Unknown keys are refused.

For speed the verifier writes its frequent replies by hand, and the drafter reads them by hand. A test validates the
replies of every endpoint with these models.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from speculation.acceptance.explain import Verdict
from speculation.acceptance.strategies import Strategy
from speculation.protocol.messages import SessionId

Count = Annotated[int, Field(ge=0)]
Tokens = Annotated[list[Count], Field(description="Token ids.")]
Position = Annotated[
    int, Field(ge=0, description="How many tokens, the prompt's included, come before the first of `tokens`.")
]
TotalTokens = Annotated[int, Field(ge=1, description="Committed tokens, the prompt's included.")]
Milliseconds = Annotated[float, Field(ge=0.0)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
FinishReason = Annotated[
    Literal["stop", "length"], Field(description="stop: an end token; length: the limit, or the context is full.")
]
OrNotYet = Annotated[FinishReason | None, Field(description="Why the text has ended; null until it has.")]


class Response(BaseModel):
    """Base of all responses."""

    model_config = ConfigDict(extra="forbid")


class Timing(Response):
    """Where the time went on the verifier."""

    queue_ms: Annotated[float, Field(ge=0.0, description="The wait for a forward pass.")]
    forward_ms: Annotated[float, Field(ge=0.0, description="The passes that ran this request; 0: none did.")]
    sessions: Annotated[int, Field(ge=0, description="Sessions that shared the last of these passes.")]


class SamplingReport(Response):
    """How the target's tokens are drawn."""

    seed: Annotated[int, Field(ge=0, lt=2**53, description="As given, or as drawn where none was given.")]
    temperature: Annotated[float, Field(ge=0.0)]
    top_k: Annotated[int, Field(ge=0, description="0: no such filter.")]
    top_p: Annotated[float, Field(gt=0.0, le=1.0)]
    strategy: Strategy
    noise: Annotated[str, Field(description="Name of the shared noise; both ends must have the same.")]
    threshold: Annotated[float, Field(ge=0.0, lt=1.0, description="With the strategy of that name.")] | None = None


class DecisionReport(Response):
    """Why a token was committed, where `explain` was asked for."""

    token: Count
    p: Annotated[Probability, Field(description="The target's probability of the token.")]
    draft: Annotated[Count | None, Field(description="The draft token that was judged at this position.")]
    draft_p: Annotated[Probability | None, Field(description="The target's probability of the draft token.")]
    q: Annotated[
        Probability | None, Field(description="The drafter's probability of the draft token, where it was sent.")
    ]
    drawn: Annotated[Probability | None, Field(description="The random number that decided, where one was drawn.")]
    verdict: Annotated[Verdict, Field(description="On the draft token; own: no draft token was judged there.")]


Decisions = Annotated[
    list[DecisionReport | None] | None,
    Field(description="One for each token, where `explain` was asked for; null for tokens of an earlier request."),
]


class VocabularyFingerprint(Response):
    """Hashes over the ids below `below`, which both ends compare in place of whole vocabularies."""

    size: Count
    below: Count
    begin: Annotated[Count | None, Field(description="The begin token.")]
    ends: Annotated[list[Count], Field(description="The end tokens.")]
    ordinary: Annotated[str, Field(description="Hash over id and bytes of the ordinary (text) tokens.")]
    control: Annotated[str, Field(description="Hash over id and bytes of the control tokens.")]


class PrefillResponse(Response):
    """An open session, with the tokens committed behind the prompt and the request's `committed_ids`."""

    session_id: SessionId
    prompt_len: Annotated[int, Field(ge=1)]
    prompt_ids: Tokens
    position: Position
    tokens: Tokens
    total_tokens: TotalTokens
    finish_reason: OrNotYet
    model: str
    vocabulary: VocabularyFingerprint
    sampling: SamplingReport
    self_continue: bool
    timing: Timing
    decisions: Decisions = None


class VerifyResponse(Response):
    """How much of a draft was accepted, and the tokens committed now."""

    position: Position
    accepted_prefix_len: Annotated[int, Field(ge=0, description="Leading draft tokens that equal committed tokens.")]
    judged: Annotated[int, Field(ge=0, description="Draft tokens that the model ran for this response.")]
    tokens: Annotated[list[Count], Field(description="Committed tokens from `position` on.")]
    preds: Annotated[list[Count], Field(description="The target's choices at these positions.")]
    total_tokens: TotalTokens
    finish_reason: OrNotYet
    timing: Timing
    decisions: Decisions = None
    unjudged: Annotated[
        int | None,
        Field(
            ge=1,
            description="Draft tokens at the end that were not judged, as the session's draft credit was used up.",
        ),
    ] = None


class ErrorDetail(Response):
    """An error. Which details come beside the message depends on the code."""

    code: Annotated[str, Field(description="Stable name of the error.")]
    type: Literal["invalid_request_error", "server_error"]
    message: Annotated[str, Field(description="One sentence that says what is wrong and what to do.")]
    param: Annotated[str | None, Field(description="The field at fault.")] = None
    total_tokens: Annotated[int, Field(ge=1, description="Committed tokens of the session.")] | None = None
    limit: Annotated[int, Field(ge=0, description="The greatest value that is accepted.")] | None = None
    prompt_len: Annotated[int, Field(ge=0, description="Tokens of the prompt.")] | None = None
    context_length: Annotated[int, Field(ge=1, description="Tokens that the context holds.")] | None = None
    progress: Annotated[Probability, Field(description="Share of the model that is loaded.")] | None = None
    retry_after: Annotated[int, Field(ge=0, description="Seconds, as in the header Retry-After.")] | None = None


class ErrorResponse(Response):
    """The one shape of errors, as OpenAI-style clients parse it."""

    error: ErrorDetail


class BatchResponse(Response):
    """For each item, in order, its response or its error."""

    results: list[VerifyResponse | ErrorResponse]


class SpeculationReport(Response):
    """Statistics of server-side drafting in one text."""

    rounds: Annotated[int, Field(ge=0, description="Verifying passes, after the one that read the prompt.")]
    drafted: Count
    accepted: Count
    acceptance_rate: Probability | None
    mean_acceptance_length: Annotated[float, Field(ge=1.0)] | None
    accepted_per_position: Annotated[
        list[Count], Field(description="Accepted draft tokens by position in their draft.")
    ]
    looked_up: Annotated[
        int, Field(ge=0, description="Draft tokens found by lookup in the text instead of by the draft model.")
    ]
    looked_up_accepted: Count
    drafting_ms: Milliseconds
    draft_failure: Annotated[
        str | None, Field(description="Why the draft model failed, so that the target decoded the rest alone.")
    ] = None


class GenerateResponse(Response):
    """A whole text, the request's `committed_ids` included."""

    session_id: SessionId
    text: str
    token_ids: Tokens
    prompt_tokens: Annotated[int, Field(ge=1)]
    generated_tokens: Count
    finish_reason: FinishReason
    model: str
    mode: Literal["target", "fused"]
    sampling: SamplingReport
    timing: Timing
    draft_model: Annotated[str | None, Field(description="In mode fused.")] = None
    speculation: Annotated[SpeculationReport | None, Field(description="In mode fused.")] = None
    decisions: Decisions = None


class GenerateOpenEvent(Response):
    """Data of the event `open`, the first of `/generate`: what a request needs to continue after a cut stream."""

    session_id: SessionId
    prompt_len: Annotated[int, Field(ge=1)]
    position: Position
    sampling: SamplingReport


class GenerateTokensEvent(Response):
    """Data of an event `tokens` of `/generate`."""

    position: Position
    tokens: Tokens
    text: Annotated[str, Field(description="The text that the tokens complete; a character comes with its last token.")]
    judged: Annotated[int | None, Field(ge=0, description="In mode fused: draft tokens that the model ran.")] = None
    accepted: Annotated[int | None, Field(ge=0, description="In mode fused: how many of them were accepted.")] = None
    decisions: Decisions = None


class SessionTokensEvent(Response):
    """Data of an event `tokens` of a session's stream."""

    position: Position
    tokens: Tokens
    own: Annotated[
        bool, Field(description="Whether they are target-decoded: the verifier committed them without a draft.")
    ]
    forward_ms: Annotated[
        float | None, Field(ge=0.0, description="Milliseconds of the pass that decoded the last of them, where `own`.")
    ] = None
    decisions: Decisions = None


class SessionEndEvent(Response):
    """Data of the event `end` of a session's stream."""

    total_tokens: TotalTokens
    finish_reason: FinishReason


class TokenizeResponse(Response):
    """Token ids of a text."""

    token_ids: Tokens


class HealthResponse(Response):
    """Whether the verifier can serve requests."""

    status: Literal["ready", "loading", "failed"]
    model: Annotated[str | None, Field(description="The served model, when ready.")] = None
    sessions: Annotated[int | None, Field(ge=0, description="Sessions held, when ready.")] = None
    draft_model_failure: Annotated[
        str | None, Field(description="Why the target decodes texts of mode fused alone.")
    ] = None
    warning: Annotated[str | None, Field(description="A model file in use was written to: restart the verifier.")] = (
        None
    )
    progress: Annotated[Probability | None, Field(description="Share of the model that is loaded, while loading.")] = (
        None
    )
    reason: Annotated[str | None, Field(description="Why loading failed, when failed.")] = None
    access: Annotated[
        Literal["unauthorized", "forbidden"] | None,
        Field(description="Why this caller is refused other endpoints, and is told status and progress only."),
    ] = None


class ModelResponse(Response):
    """The served model and its limits."""

    model: str
    backend: str
    context_length: Annotated[int, Field(ge=1)]
    rows: Annotated[int, Field(ge=1, description="KV slots: sessions whose KV cache is held at a time.")]
    kv_bytes: Annotated[int, Field(ge=0, description="Bytes of the KV cache of all slots.")]
    max_draft_tokens: Annotated[int, Field(ge=0, description="Most new draft tokens of a request.")]
    pass_ms: Annotated[
        list[Milliseconds], Field(description="Milliseconds of a pass over 1, 2, … tokens, measured at start.")
    ]
    strategies: list[Strategy]
    self_continue: bool
    modes: list[Literal["target", "fused"]]
    draft_model: Annotated[str | None, Field(description="The draft model on the server, for mode fused.")]
    draft_pass_ms: Milliseconds | None
    noise: str
    vocabulary: VocabularyFingerprint
    chat_template: Annotated[str | None, Field(description="The model's own Jinja template.")]


class VocabularyResponse(Response):
    """All token ids."""

    size: Count
    begin: Count | None
    ends: list[Count]
    kinds: Annotated[str, Field(description="One digit for each id: 0 text, 1 control, 2 unused.")]
    pieces: Annotated[list[str], Field(description="The bytes of each id, a byte as a character U+0000 to U+00FF.")]


class SessionInfo(Response):
    """A session that the verifier holds."""

    session_id: Annotated[SessionId | None, Field(description="Only for callers with a key.")] = None
    prompt_len: Annotated[int, Field(ge=1)]
    total_tokens: TotalTokens
    finish_reason: OrNotYet
    resident: Annotated[bool, Field(description="Whether it has a KV slot.")]


class SessionsResponse(Response):
    """The sessions of the caller's key; without a key, all sessions without their ids."""

    sessions: list[SessionInfo]


class DeletedResponse(Response):
    """A session was deleted."""

    session_id: SessionId
    deleted: Literal[True]
