"""What a verifier answers, as models for its OpenAPI document and for tests. Unknown keys are refused.

The verifier writes its replies by hand where a round trip counts, and the drafter reads them by hand; a test holds the
replies of every endpoint against these models.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from speculation.acceptance.decisions import Verdict
from speculation.acceptance.strategies import Strategy
from speculation.protocol.messages import SessionId

Count = Annotated[int, Field(ge=0)]
Tokens = Annotated[list[Count], Field(description="Token ids.")]
Position = Annotated[int, Field(ge=0, description="How many tokens, the prompt's included, come before the first one.")]
TotalTokens = Annotated[int, Field(ge=1, description="Committed tokens, the prompt's included.")]
Milliseconds = Annotated[float, Field(ge=0.0)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
FinishReason = Annotated[
    Literal["stop", "length"], Field(description="stop: an end token; length: the limit, or the context is full.")
]
OrNotYet = Annotated[FinishReason | None, Field(description="Why the text has ended; null while it has not.")]


class Response(BaseModel):
    """Base of what a verifier sends."""

    model_config = ConfigDict(extra="forbid")


class Timing(Response):
    """Where the time went on the verifier."""

    queue_ms: Annotated[float, Field(ge=0.0, description="The wait for a forward pass.")]
    forward_ms: Annotated[float, Field(ge=0.0, description="The passes that ran this request; 0: none did.")]
    sessions: Annotated[int, Field(ge=0, description="That shared the last of these passes.")]


class SamplingReport(Response):
    """How the target's tokens are drawn."""

    seed: Annotated[int, Field(ge=0, lt=2**53, description="As given, or as drawn where none was.")]
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
    draft: Annotated[Count | None, Field(description="The draft token that was judged at this place.")]
    draft_p: Annotated[Probability | None, Field(description="The target's probability of the draft token.")]
    q: Annotated[Probability | None, Field(description="With which it was drafted, where that was sent.")]
    drawn: Annotated[Probability | None, Field(description="The number that decided, where one was drawn.")]
    verdict: Annotated[Verdict, Field(description="On the draft token; own: there was none.")]


Decisions = Annotated[
    list[DecisionReport | None] | None,
    Field(description="One a token, where `explain` was asked for; null for tokens of an earlier request."),
]


class VocabularyFingerprint(Response):
    """What both ends compare in place of whole vocabularies: hashes over the ids below `below`."""

    size: Count
    below: Count
    begin: Annotated[Count | None, Field(description="The token that texts begin with.")]
    ends: Annotated[list[Count], Field(description="The tokens that end a text.")]
    ordinary: Annotated[str, Field(description="Hash over id and bytes of the tokens that are text.")]
    control: Annotated[str, Field(description="The same of control tokens.")]


class PrefillResponse(Response):
    """An open session with its tokens behind what was committed before."""

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
    """What became of a draft, and the tokens that are committed now."""

    position: Position
    accepted_prefix_len: Annotated[int, Field(ge=0, description="Leading draft tokens that equal committed tokens.")]
    judged: Annotated[int, Field(ge=0, description="Draft tokens that the model ran for this answer.")]
    tokens: Annotated[list[Count], Field(description="Committed tokens from `position` on.")]
    preds: Annotated[list[Count], Field(description="The target's choices at these places.")]
    total_tokens: TotalTokens
    finish_reason: OrNotYet
    timing: Timing
    decisions: Decisions = None
    unjudged: Annotated[
        int | None,
        Field(ge=1, description="The last draft tokens, where the session's credit did not suffice for them."),
    ] = None


class ErrorDetail(Response):
    """What went wrong. Which details come beside the message depends on the code."""

    code: Annotated[str, Field(description="Stable name of the error.")]
    type: Literal["invalid_request_error", "server_error"]
    message: Annotated[str, Field(description="One sentence that says what is wrong and what to do.")]
    param: Annotated[str | None, Field(description="The field at fault.")] = None
    total_tokens: Annotated[int, Field(ge=1, description="Committed tokens of the session.")] | None = None
    limit: Annotated[int, Field(ge=0, description="What is taken at most.")] | None = None
    prompt_len: Annotated[int, Field(ge=0, description="Tokens of the prompt.")] | None = None
    context_length: Annotated[int, Field(ge=1, description="Tokens that the context holds.")] | None = None
    progress: Annotated[Probability, Field(description="How much of the model is loaded.")] | None = None
    retry_after: Annotated[int, Field(ge=0, description="Seconds, as in the header Retry-After.")] | None = None


class ErrorResponse(Response):
    """The one shape of errors, which OpenAI-style clients parse, too."""

    error: ErrorDetail


class BatchResponse(Response):
    """For each item, in order, its reply or its error."""

    results: list[VerifyResponse | ErrorResponse]


class SpeculationReport(Response):
    """What drafting on the server came to in one text."""

    rounds: Annotated[int, Field(ge=0, description="Passes behind the one that read the prompt.")]
    drafted: Count
    accepted: Count
    acceptance_rate: Probability | None
    mean_acceptance_length: Annotated[float, Field(ge=1.0)] | None
    accepted_per_position: Annotated[list[Count], Field(description="Accepted draft tokens by place in their draft.")]
    looked_up: Annotated[int, Field(ge=0, description="Draft tokens looked up in the text in place of drafted.")]
    looked_up_accepted: Count
    drafting_ms: Milliseconds
    draft_failure: Annotated[
        str | None, Field(description="Why the draft model failed, and the target wrote the rest by itself.")
    ] = None


class GenerateResponse(Response):
    """A whole text, what was committed before included."""

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
    """Data of the event `open` of `/generate`, the first: what a request needs to go on if the stream is cut."""

    session_id: SessionId
    prompt_len: Annotated[int, Field(ge=1)]
    position: Position
    sampling: SamplingReport


class GenerateTokensEvent(Response):
    """Data of an event `tokens` of `/generate`."""

    position: Position
    tokens: Tokens
    text: Annotated[str, Field(description="What the tokens complete; a character comes with its last token.")]
    judged: Annotated[int | None, Field(ge=0, description="In mode fused: draft tokens that the model ran.")] = None
    accepted: Annotated[int | None, Field(ge=0, description="In mode fused: how many of them were accepted.")] = None
    decisions: Decisions = None


class SessionTokensEvent(Response):
    """Data of an event `tokens` of a session's stream."""

    position: Position
    tokens: Tokens
    own: Annotated[bool, Field(description="Whether the verifier decoded them by itself, with no draft there.")]
    forward_ms: Annotated[
        float | None, Field(ge=0.0, description="Of the pass that brought the last of them, where `own`.")
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
    """Whether texts can be written."""

    status: Literal["ready", "loading", "failed"]
    model: Annotated[str | None, Field(description="When ready.")] = None
    sessions: Annotated[int | None, Field(ge=0, description="That are held, when ready.")] = None
    draft_model_failure: Annotated[
        str | None, Field(description="Why texts of mode fused are written by the target alone.")
    ] = None
    warning: Annotated[
        str | None, Field(description="A model file was written to while it is in use: restart the verifier.")
    ] = None
    progress: Annotated[Probability | None, Field(description="How much is loaded, while loading.")] = None
    reason: Annotated[str | None, Field(description="When failed.")] = None
    access: Annotated[
        Literal["unauthorized", "forbidden"] | None,
        Field(description="Why this caller is served nothing else, and hears status and progress only."),
    ] = None


class ModelResponse(Response):
    """What is served."""

    model: str
    backend: str
    context_length: Annotated[int, Field(ge=1)]
    rows: Annotated[int, Field(ge=1, description="Sessions whose KV cache is held at a time.")]
    kv_bytes: Annotated[int, Field(ge=0, description="Size of the KV cache of all of them.")]
    max_draft_tokens: Annotated[int, Field(ge=0, description="New draft tokens that a request may hold.")]
    pass_ms: Annotated[list[Milliseconds], Field(description="What a pass over 1, 2, … tokens took at the start.")]
    strategies: list[Strategy]
    self_continue: bool
    modes: list[Literal["target", "fused"]]
    draft_model: Annotated[str | None, Field(description="What drafts here, in mode fused.")]
    draft_pass_ms: Milliseconds | None
    noise: str
    vocabulary: VocabularyFingerprint
    chat_template: Annotated[str | None, Field(description="The model's own Jinja template.")]


class VocabularyResponse(Response):
    """All token ids."""

    size: Count
    begin: Count | None
    ends: list[Count]
    kinds: Annotated[str, Field(description="A digit an id: 0 text, 1 control, 2 unused.")]
    pieces: Annotated[list[str], Field(description="The bytes of each id, a byte as a character U+0000 to U+00FF.")]


class SessionInfo(Response):
    """A session that is held."""

    session_id: Annotated[SessionId | None, Field(description="With a key only.")] = None
    prompt_len: Annotated[int, Field(ge=1)]
    total_tokens: TotalTokens
    finish_reason: OrNotYet
    resident: Annotated[bool, Field(description="Whether its KV cache is held.")]


class SessionsResponse(Response):
    """The sessions of the key; without a key all that are held, but not their ids."""

    sessions: list[SessionInfo]


class DeletedResponse(Response):
    """A session is forgotten."""

    session_id: SessionId
    deleted: Literal[True]
