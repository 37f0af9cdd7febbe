"""Responses with tokens, and errors. The verifier writes replies with these models; the drafter reads them.

Unknown keys are ignored, since a later verifier may send more. The fields stand in the order of the JSON keys.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from specpair.numbers import seconds
from specpair.protocol.errors import SpecPairError
from specpair.protocol.fingerprint import Fingerprint
from specpair.protocol.messages import SessionId
from specpair.protocol.response_fields import (
    FROM_OBJECT,
    CachedTokens,
    Count,
    Decisions,
    Ended,
    Identity,
    Logprobs,
    Milliseconds,
    Model,
    Name,
    OrNotYet,
    Position,
    Probability,
    PromptLength,
    Reason,
    Response,
    SamplingReport,
    Sources,
    TimedResponse,
    Timing,
    Tokens,
    TotalTokens,
)
from specpair.speculation.acceptance.token_sources import Round, TokenDetails, last_round


class PrefillResponse(TimedResponse):
    """An open session, with the tokens committed behind the prompt and the request's `committed_ids`."""

    session_id: SessionId
    prompt_len: PromptLength
    prompt_ids: Annotated[Tokens, Field(description="The prompt's token ids, without those of the request's `prefix`.")]
    position: Position
    tokens: Tokens
    total_tokens: TotalTokens
    finish_reason: OrNotYet
    model: Model
    identity: Identity
    vocabulary: Annotated[Fingerprint, FROM_OBJECT]
    sampling: SamplingReport
    self_continue: Annotated[bool, Field(description="Whether the verifier decodes on by itself while it waits.")]
    timing: Timing
    cached_tokens: CachedTokens = 0
    sources: Sources
    decisions: Decisions = None
    logprobs: Logprobs = None


class VerifyResponse(TimedResponse):
    """How much of a draft was accepted, and the tokens committed now: at least one until the text has ended."""

    position: Position
    accepted: Annotated[
        Count, Field(alias="accepted_prefix_len", description="Leading draft tokens that equal committed tokens.")
    ]
    accepted_path: Annotated[
        list[Count] | None,
        Field(
            fail_fast=True,
            description="Of a draft that is a tree: indices in `draft_tokens` of those that equal committed tokens.",
        ),
    ] = None
    judged: Annotated[Count, Field(description="Draft tokens that the model ran for this response.")]
    unjudged: Annotated[
        Count,
        Field(description="Draft tokens that were not judged: beyond the draft credit, or beside the chain that was."),
    ] = 0
    tokens: Annotated[Tokens, Field(description="Committed tokens from `position` on.")]
    preds: Annotated[Tokens, Field(description="The target's choices at these positions.")]
    sources: Sources
    decisions: Decisions = None
    logprobs: Logprobs = None
    total_tokens: TotalTokens
    finish_reason: OrNotYet
    timing: Timing

    @property
    def details(self) -> TokenDetails:
        return TokenDetails.of(self)

    @property
    def sessions(self) -> int:
        return self.timing.sessions

    @property
    def pass_tokens(self) -> int:
        return self.timing.tokens

    @property
    def ran(self) -> bool:
        """Whether the target ran for this request: not if its draft was stale or contained in a longer draft."""
        return self.judged > 0 or self.forward > 0.0

    @property
    def round(self) -> Round | None:
        """The pass of the request itself: its place among `tokens`, and its draft tokens; None: there was none."""
        return last_round(self.sources) if self.ran else None


class ErrorDetail(Response):
    """An error. The details besides the message depend on the code."""

    model_config = ConfigDict(extra="allow")

    code: Annotated[str, Field(description="Stable name of the error.")]
    type: Annotated[
        Literal["invalid_request_error", "server_error", "requests", "tokens"],
        Field(description="Whether request or verifier is at fault, or what is limited."),
    ]
    message: Annotated[str, Field(description="One sentence that says what is wrong and what to do.")]
    param: Annotated[str | None, Field(description="The field at fault.")] = None
    total_tokens: Annotated[int, Field(ge=1, description="Committed tokens of the session.")] | None = None
    limit: Annotated[int, Field(ge=0, description="The greatest value that is accepted.")] | None = None
    prompt_len: Annotated[int, Field(ge=0, description="Tokens of the prompt.")] | None = None
    context_length: Annotated[int, Field(ge=1, description="Tokens that the context holds.")] | None = None
    progress: Annotated[Probability, Field(description="Share of the model that is loaded.")] | None = None
    retry_after: (
        Annotated[int | float, Field(ge=0, description="Seconds; the header Retry-After has them rounded up.")] | None
    ) = None


class ErrorResponse(Response):
    """The one shape of errors, as OpenAI-style clients parse it."""

    error: ErrorDetail

    @classmethod
    def of(cls, error: SpecPairError) -> "ErrorResponse":
        return cls.model_validate(error.body())


class BatchResponse(Response):
    """For each item, in order, its response or its error."""

    results: Annotated[list[VerifyResponse | ErrorResponse], Field(description="As many as `items`.")]


class DraftContext(Response):
    """Tokens of a text that the draft model has in its context: see docs/modes.md#long-prompts."""

    sink: Annotated[Count, Field(description="The first tokens of a text of which it reads parts.")]
    pieces: Annotated[Count, Field(description="Those between sink and window.")]
    window: Annotated[Count, Field(description="The last tokens, or all.")]
    of: Annotated[Count, Field(description="Tokens of the text.")]


class Speculation(Response):
    """Statistics of server-side drafting in one text."""

    rounds: Annotated[Count, Field(description="Verifying passes, after the one that read the prompt.")]
    drafted: Annotated[Count, Field(description="Draft tokens that the target judged.")]
    accepted: Annotated[Count, Field(description="How many of them were accepted.")]
    acceptance_rate: Annotated[Probability | None, Field(description="`accepted` / `drafted`; null if nothing was.")]
    mean_acceptance_length: Annotated[
        float | None, Field(ge=1.0, description="Tokens of a round: 1 + `accepted` / `rounds`; null without rounds.")
    ]
    accepted_per_position: Annotated[
        list[Count], Field(fail_fast=True, description="Accepted draft tokens by position in their draft.")
    ]
    looked_up: Annotated[
        Count,
        Field(description="Draft tokens found by lookup (text, prediction or draft corpus), not by the draft model."),
    ]
    looked_up_accepted: Annotated[Count, Field(description="How many of these were accepted.")]
    by_head: Annotated[Count, Field(description="Draft tokens that the target's own head predicted.")] = 0
    by_head_accepted: Annotated[Count, Field(description="How many of these were accepted.")] = 0
    from_grammar: Annotated[
        Count, Field(description="Accepted draft tokens beside which the grammar allowed no other one.")
    ] = 0
    drafting_ms: Annotated[Milliseconds, Field(description="Time that drafting took, over all rounds.")]
    draft_context: Annotated[
        DraftContext | None, Field(description="At the last draft step; null if there is no draft model.")
    ] = None
    prediction_accepted: Annotated[
        Count | None, Field(description="With a prediction: draft tokens from it that were accepted.")
    ] = None
    prediction_rejected: Annotated[
        Count | None, Field(description="With a prediction: draft tokens from it that were rejected.")
    ] = None
    draft_failure: Annotated[
        Reason | None, Field(description="Why the draft model failed, so that the target decoded the rest alone.")
    ] = None


class GenerateResponse(TimedResponse):
    """A whole text, the request's `committed_ids` included."""

    session_id: SessionId
    text: Annotated[str, Field(description="Without the prompt; bytes that are no UTF-8 are U+FFFD.")]
    token_ids: Tokens
    prompt_tokens: PromptLength
    generated_tokens: Annotated[Count, Field(description="How many `token_ids` there are.")]
    finish_reason: Ended
    model: Model
    mode: Annotated[Literal["target", "fused"], Field(description="As in the request.")]
    sampling: SamplingReport
    timing: Timing
    cached_tokens: CachedTokens = 0
    draft_model: Annotated[Name | None, Field(description="In mode fused.")] = None
    speculation: Annotated[Speculation | None, Field(description="In mode fused.")] = None
    sources: Sources
    decisions: Decisions = None
    logprobs: Logprobs = None

    @property
    def drafting(self) -> float:
        """Seconds that drafting took."""
        return seconds(self.speculation.drafting_ms) if self.speculation else 0.0


class GenerateOpenEvent(Response):
    """Data of the event `open`, the first of `/generate`: the fields with which a request continues a cut stream."""

    session_id: SessionId
    prompt_len: PromptLength
    position: Position
    identity: Identity
    sampling: SamplingReport


class GenerateTokensEvent(Response):
    """Data of an event `tokens` of `/generate`."""

    position: Position
    tokens: Tokens
    sources: Sources
    text: Annotated[str, Field(description="The text that the tokens complete; a character comes with its last token.")]
    judged: Annotated[Count | None, Field(description="In mode fused: draft tokens that the model ran.")] = None
    accepted: Annotated[Count | None, Field(description="In mode fused: how many of them were accepted.")] = None
    cached_tokens: CachedTokens = 0  # in the first event only
    decisions: Decisions = None
    logprobs: Logprobs = None


class StreamedTokens(Response):
    """Data of an event `tokens` of a session's stream."""

    position: Position
    tokens: Tokens
    sources: Sources
    target_decoded: Annotated[
        bool,
        Field(alias="own", description="Whether the verifier committed them without a draft: self-continuation."),
    ]
    forward_ms: Annotated[
        Milliseconds | None,
        Field(
            description="Milliseconds of the step that decoded the last of them, where `own`; with those of the head."
        ),
    ] = None
    decisions: Decisions = None
    logprobs: Logprobs = None

    @property
    def forward(self) -> float | None:
        """Seconds of the step that decoded the last of them, if they are target-decoded."""
        return seconds(self.forward_ms)


class StreamEnd(Response):
    """Data of the event `end` of a session's stream."""

    total_tokens: TotalTokens
    finish_reason: Ended
