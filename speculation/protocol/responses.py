"""Response models of the protocol: the verifier builds its replies of them, and the drafter reads replies with them.

Unknown keys are ignored, since a later verifier may send more. The fields stand in the order of the JSON keys.
"""

from typing import Annotated, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from speculation.acceptance.explain import Decision
from speculation.acceptance.strategies import Strategy
from speculation.errors import SpecPairError
from speculation.protocol.fingerprint import Fingerprint
from speculation.protocol.messages import SessionId
from speculation.sampling import gumbel
from speculation.sampling.sampling import Sampling
from speculation.terminal_text import one_line

Count = Annotated[int, Field(ge=0, le=2**53)]  # larger ones are not exact as floats
Tokens = Annotated[list[Count], Field(fail_fast=True, description="Token ids.")]
Position = Annotated[
    Count, Field(description="How many tokens, the prompt's included, come before the first of `tokens`.")
]
TotalTokens = Annotated[Count, Field(ge=1, description="Committed tokens, the prompt's included.")]
Milliseconds = Annotated[float, Field(ge=0.0, le=1e9)]  # at most about eleven days
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Name = Annotated[str, Field(max_length=1000), AfterValidator(one_line)]  # safe on a terminal
Reason = Annotated[str, AfterValidator(one_line)]
FinishReason = Literal["stop", "length"]  # an end token; the limit, or the context is full
Ended = Annotated[FinishReason, Field(description="stop: an end token; length: the limit, or the context is full.")]
OrNotYet = Annotated[FinishReason | None, Field(description="Why the text has ended; null until it has.")]
Decisions = Annotated[
    list[Decision | None] | None,
    Field(
        fail_fast=True,
        description="One for each token, where `explain` was asked for; null for tokens of an earlier request.",
    ),
]


class Response(BaseModel):
    """Base of all responses. A field that has a default is left out of the JSON where it has that value."""

    model_config = ConfigDict(
        frozen=True, strict=True, allow_inf_nan=False, validate_by_name=True, serialize_by_alias=True
    )

    def body(self) -> bytes:
        """The response as JSON."""
        return self.model_dump_json(exclude_defaults=True).encode()


class Timing(Response):
    """Where the time went on the verifier."""

    queue_ms: Annotated[Milliseconds, Field(description="The wait for a forward pass.")]
    forward_ms: Annotated[Milliseconds, Field(description="The passes that ran this request; 0: none did.")]
    sessions: Annotated[Count, Field(description="Sessions that shared the last of these passes.")]


class _HasTiming(Protocol):
    @property
    def timing(self) -> Timing: ...


class TimedResponse(Response):
    """Base of the responses that have a `timing`."""

    @property
    def queue_ms(self: _HasTiming) -> float:
        return self.timing.queue_ms

    @property
    def forward_ms(self: _HasTiming) -> float:
        return self.timing.forward_ms


class SamplingReport(Response):
    """How the target's tokens are drawn."""

    seed: Annotated[int, Field(ge=0, lt=gumbel.SEED_LIMIT, description="As given, or as drawn where none was given.")]
    temperature: Annotated[float, Field(ge=0.0)]
    top_k: Annotated[Count, Field(description="0: no such filter.")]
    top_p: Annotated[float, Field(gt=0.0, le=1.0)]
    strategy: Strategy
    noise: Annotated[Name, Field(description="Name of the shared noise; both ends must have the same.")]
    threshold: Annotated[float, Field(ge=0.0, lt=1.0, description="With the strategy of that name.")] | None = None

    @classmethod
    def of(cls, sampling: Sampling, strategy: Strategy, threshold: float | None) -> "SamplingReport":
        """The report of a session's settings."""
        return cls(
            seed=sampling.seed,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            strategy=strategy,
            noise=gumbel.NAME,
            threshold=threshold,
        )

    def settings(self) -> dict[str, int | float | str]:
        """The JSON object."""
        return self.model_dump(mode="json", exclude_defaults=True)


class PrefillResponse(TimedResponse):
    """An open session, with the tokens committed behind the prompt and the request's `committed_ids`."""

    session_id: SessionId
    prompt_len: Annotated[Count, Field(ge=1)]
    prompt_ids: Tokens
    position: Position
    tokens: Tokens
    total_tokens: TotalTokens
    finish_reason: OrNotYet
    model: Name
    vocabulary: Fingerprint
    sampling: SamplingReport
    self_continue: bool
    timing: Timing
    decisions: Decisions = None


class VerifyResponse(TimedResponse):
    """How much of a draft was accepted, and the tokens committed now: at least one until the text has ended."""

    position: Position
    accepted: Annotated[
        Count, Field(alias="accepted_prefix_len", description="Leading draft tokens that equal committed tokens.")
    ]
    judged: Annotated[Count, Field(description="Draft tokens that the model ran for this response.")]
    unjudged: Annotated[
        Count,
        Field(
            description="Draft tokens at the end that were not judged, as the session's draft credit was used up.",
        ),
    ] = 0
    tokens: Annotated[Tokens, Field(description="Committed tokens from `position` on.")]
    preds: Annotated[Tokens, Field(description="The target's choices at these positions.")]
    decisions: Decisions = None
    total_tokens: TotalTokens
    finish_reason: OrNotYet
    timing: Timing

    @property
    def sessions(self) -> int:
        return self.timing.sessions

    @property
    def ran(self) -> bool:
        """Whether the target ran for this request: not if its draft was out of date, or contained in a longer one."""
        return self.judged > 0 or self.forward_ms > 0.0

    def recorded(self, drafts: int) -> int:
        """How many of `tokens` had been committed before this request's pass: all of them if it had none.

        `drafts`: how many draft tokens the request had. Before the judged ones are those that had been committed, and
        after them only the unjudged ones, since none is sent for positions beyond the end of the text.
        """
        if self.judged:
            return drafts - self.unjudged - self.judged
        return len(self.tokens) - self.ran

    def judged_accepted(self, drafts: int) -> int:
        """How many of the judged draft tokens were accepted. `drafts`: how many draft tokens the request had.

        `accepted` may count more: draft tokens that had been committed before, and one that was not judged and equals
        the target's token after the judged ones.
        """
        return min(max(0, self.accepted - self.recorded(drafts)), self.judged)


class ErrorDetail(Response):
    """An error. Which details come beside the message depends on the code."""

    model_config = ConfigDict(extra="allow")

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

    @classmethod
    def of(cls, error: SpecPairError) -> "ErrorResponse":
        return cls.model_validate(error.body())


class BatchResponse(Response):
    """For each item, in order, its response or its error."""

    results: list[VerifyResponse | ErrorResponse]


class Speculation(Response):
    """Statistics of server-side drafting in one text."""

    rounds: Annotated[Count, Field(description="Verifying passes, after the one that read the prompt.")]
    drafted: Count
    accepted: Count
    acceptance_rate: Probability | None
    mean_acceptance_length: Annotated[float, Field(ge=1.0)] | None
    accepted_per_position: Annotated[
        list[Count], Field(fail_fast=True, description="Accepted draft tokens by position in their draft.")
    ]
    looked_up: Annotated[
        Count, Field(description="Draft tokens found by lookup in the text instead of by the draft model.")
    ]
    looked_up_accepted: Count
    drafting_ms: Milliseconds
    draft_failure: Annotated[
        Reason | None, Field(description="Why the draft model failed, so that the target decoded the rest alone.")
    ] = None


class GenerateResponse(TimedResponse):
    """A whole text, the request's `committed_ids` included."""

    session_id: SessionId
    text: str
    token_ids: Tokens
    prompt_tokens: Annotated[Count, Field(ge=1)]
    generated_tokens: Count
    finish_reason: Ended
    model: Name
    mode: Literal["target", "fused"]
    sampling: SamplingReport
    timing: Timing
    draft_model: Annotated[Name | None, Field(description="In mode fused.")] = None
    speculation: Annotated[Speculation | None, Field(description="In mode fused.")] = None
    decisions: Decisions = None

    @property
    def milliseconds(self) -> float:
        """All the time that the verifier reports: queue, target passes and drafting."""
        return self.queue_ms + self.forward_ms + (self.speculation.drafting_ms if self.speculation else 0.0)


class GenerateOpenEvent(Response):
    """Data of the event `open`, the first of `/generate`: what a request needs to continue after a cut stream."""

    session_id: SessionId
    prompt_len: Annotated[Count, Field(ge=1)]
    position: Position
    sampling: SamplingReport


class GenerateTokensEvent(Response):
    """Data of an event `tokens` of `/generate`."""

    position: Position
    tokens: Tokens
    text: Annotated[str, Field(description="The text that the tokens complete; a character comes with its last token.")]
    judged: Annotated[Count | None, Field(description="In mode fused: draft tokens that the model ran.")] = None
    accepted: Annotated[Count | None, Field(description="In mode fused: how many of them were accepted.")] = None
    decisions: Decisions = None


class StreamedTokens(Response):
    """Data of an event `tokens` of a session's stream."""

    position: Position
    tokens: Tokens
    target_decoded: Annotated[
        bool,
        Field(alias="own", description="Whether the verifier committed them without a draft: self-continuation."),
    ]
    forward_ms: Annotated[
        Milliseconds | None, Field(description="Milliseconds of the pass that decoded the last of them, where `own`.")
    ] = None
    decisions: Decisions = None


class StreamEnd(Response):
    """Data of the event `end` of a session's stream."""

    total_tokens: TotalTokens
    finish_reason: Ended


class TokenizeResponse(Response):
    """Token ids of a text."""

    token_ids: Tokens


class HealthResponse(Response):
    """Whether the verifier can serve requests."""

    status: Literal["ready", "loading", "failed"]
    model: Annotated[Name | None, Field(description="The served model, when ready.")] = None
    sessions: Annotated[Count | None, Field(description="Sessions held, when ready.")] = None
    draft_model_failure: Annotated[
        str | None, Field(description="Why the target decodes texts of mode fused alone.")
    ] = None
    warning: Annotated[str | None, Field(description="A model file in use was written to: restart the verifier.")] = (
        None
    )
    progress: Annotated[Probability | None, Field(description="Share of the model that is loaded, while loading.")] = (
        None
    )
    access: Annotated[
        Literal["unauthorized", "forbidden"] | None,
        Field(description="Why this caller is refused other endpoints, and is told status and progress only."),
    ] = None
    reason: Annotated[str | None, Field(description="Why loading failed, when failed.")] = None


class ModelInfo(Response):
    """The served model and its limits."""

    name: Annotated[Name, Field(alias="model", description="The target model.")]
    engine: Annotated[Name, Field(alias="backend", description="The backend that runs it.")]
    context_length: Annotated[Count, Field(ge=1)]
    rows: Annotated[Count, Field(ge=1, description="KV slots: sessions whose KV cache is held at a time.")]
    kv_bytes: Annotated[Count, Field(description="Bytes of the KV cache of all slots.")]
    max_drafts: Annotated[Count, Field(alias="max_draft_tokens", description="Most new draft tokens of a request.")]
    pass_ms: Annotated[
        list[Milliseconds],
        Field(fail_fast=True, description="Milliseconds of a pass over 1, 2, … tokens, measured at start."),
    ]
    strategies: Annotated[list[Name], Field(fail_fast=True, description="The rules for accepting draft tokens.")]
    self_continue: Annotated[bool, Field(description="Whether the verifier supports self-continuation.")]
    modes: Annotated[list[Name], Field(fail_fast=True, description="Modes of `/generate`: target, fused.")]
    draft_model: Annotated[Name | None, Field(description="The draft model on the server, for mode fused.")]
    draft_pass_ms: Annotated[Milliseconds | None, Field(description="Its pass over one token; null: not measured.")]
    noise: Name
    vocabulary: Fingerprint
    chat_template: Annotated[str | None, Field(description="The model's own Jinja template.")]


class VocabularyResponse(Response):
    """All token ids."""

    size: Count
    begin: Count | None
    ends: Tokens
    kinds: Annotated[str, Field(pattern="^[012]*$", description="One digit for each id: 0 text, 1 control, 2 unused.")]
    pieces: Annotated[
        list[Annotated[str, Field(pattern=r"^[\x00-\xff]*$")]],
        Field(fail_fast=True, description="The bytes of each id, a byte as a character U+0000 to U+00FF."),
    ]


class SessionInfo(Response):
    """A session that the verifier holds."""

    session_id: Annotated[SessionId | None, Field(description="Only for callers with a key.")] = None
    prompt_len: Annotated[Count, Field(ge=1)]
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
