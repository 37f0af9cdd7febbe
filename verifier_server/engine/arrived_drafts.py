"""A verify request in the engine, and its answer.

The position rule is one comparison that makes retries, stale drafts and overlapping drafts all safe. A verify request
states `position`, the number of tokens that the client KNOWS to be committed, and carries its whole draft from there
on. The draft is compared with what is committed by now. Only the part beyond that needs the model.
"""

from collections.abc import Callable
from dataclasses import dataclass

from specpair.numbers import milliseconds
from specpair.protocol.errors import PositionBeyondCommitted, PositionInsidePrompt, SpecPairError, TooManyDrafts
from specpair.protocol.response_fields import FinishReason, Timing
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.acceptance.token_sources import Round, TokenDetails, last_round
from specpair.speculation.draft import NO_DRAFT, Draft
from specpair.speculation.policy.schedule import UNSAID, RejectionPolicy
from verifier_server.sessions import Session


@dataclass(slots=True)
class Answer:
    """The engine's answer to a request; the reply to `/verify` says the same."""

    position: int
    tokens: list[int]  # committed from `position` on
    details: TokenDetails  # of `tokens`
    accepted: int  # leading draft tokens equal to committed tokens; 0 with a strategy that accepts none
    judged: int  # draft tokens that the target judged for this answer
    total_tokens: int
    finish_reason: FinishReason | None
    queue: float  # seconds until its first pass; until the answer if another request's pass brought it
    forward: float  # seconds of the passes that ran this request itself; 0 if there was none
    sessions: int = 0  # how many sessions shared the last of these passes
    pass_tokens: int = 0  # of all sessions in that pass
    unjudged: int = 0  # new draft tokens beyond the draft credit, or beside the chain that the engine judges
    path: list[int] | None = None  # of a tree, the indices of those `accepted`; None: the draft was a chain

    @property
    def round(self) -> Round | None:
        """The pass that ran for this request; None: none did."""
        return last_round(self.details.sources) if self.judged or self.forward else None

    @property
    def timing(self) -> Timing:
        """The times, as in replies."""
        return Timing(
            queue_ms=milliseconds(self.queue),
            forward_ms=milliseconds(self.forward),
            sessions=self.sessions,
            tokens=self.pass_tokens,
        )


OnAnswer = Callable[[Answer | SpecPairError], None]  # called with each answer, from any thread


@dataclass(eq=False, slots=True)
class Request:
    """A checked verify request that waits. The engine's thread calls `done` once, with the answer.

    With `until_end`, the target decodes the session to its end, and `done` is called after every pass. All times are in
    seconds.
    """

    session: Session
    draft: Draft
    done: OnAnswer = lambda _: None  # set by who hands the request to the engine
    until_end: bool = False
    policy: RejectionPolicy = UNSAID  # what happens to its session after a rejection
    admitted: bool = False  # whether its text was admitted before: it then may wait in a full queue, too
    cancelled: bool = False  # the answer is no longer wanted; set from any thread
    submitted: float = 0.0  # when it was queued
    started: float | None = None  # when the first pass that ran this request began
    forward: float = 0.0  # total time of the passes that ran this request
    sessions: int = 0  # how many sessions shared the last of these passes
    pass_tokens: int = 0  # of all sessions in that pass
    since: float = 0.0  # when it took its place in the order of arrival
    fresh: Draft = NO_DRAFT  # what goes beyond the committed tokens, as of the last `compare`
    left_out: int = 0  # draft tokens of a tree beside `fresh`, which the engine cannot judge

    @property
    def position(self) -> int:
        """How many tokens the client knows to be committed."""
        return self.draft.position

    def compare(self, max_drafts: int, first: bool, trees: bool = True) -> bool:
        """Compare the draft with the committed tokens; returns False if these answer it without a pass.

        `trees`: whether what is left of a tree can be judged; else its likeliest chain is.

        `fresh` may stay longer than `max_drafts` while the request is not the `first` of its session: earlier requests
        may commit part of it. Raises TooManyDrafts, PositionInsidePrompt, PositionBeyondCommitted.
        """
        session, fresh = self.session, self._beyond()
        if fresh is None:
            return False
        whole = len(fresh)
        if not trees:
            fresh = fresh.likeliest()
        left_out = whole - len(fresh)
        if len(fresh) <= max_drafts:
            # The last position before the limit always gets a bonus or recovered token: no draft token is needed there.
            fresh = fresh.within(session.limit - fresh.position - 1)
        elif first:
            check_number(len(fresh), max_drafts)
        self.fresh, self.left_out = fresh, left_out
        return True

    def recorded(self) -> Answer | None:
        """The answer if the committed tokens hold it. Raises what `check_position` raises. Thread-safe."""
        return self.answer(self.submitted, None) if self._beyond() is None else None

    def answer(self, now: float, judged: int | None) -> Answer:
        """The answer, read from the committed tokens.

        `judged`: how many of its draft tokens the pass that brought the answer judged. None: another request's pass
        brought it, or none did; so each pass is reported in one answer only.
        """
        session, ran = self.session, judged is not None
        finish_reason = session.finish_reason  # the engine's thread sets it after the tokens before it
        tokens = session.tokens[self.position :]
        total = self.position + len(tokens)
        path = [] if session.strategy is Strategy.GREEDY else self.draft.path(tokens)
        return Answer(
            position=self.position,
            tokens=tokens,
            details=session.details_of(self.position, total),
            accepted=len(path),
            path=None if self.draft.is_chain else path,
            judged=judged or 0,
            total_tokens=total,
            finish_reason=finish_reason,
            queue=(self.started if ran and self.started is not None else now) - self.submitted,
            forward=self.forward if ran else 0.0,
            sessions=self.sessions if ran else 0,
            pass_tokens=self.pass_tokens if ran else 0,
            unjudged=len(self.fresh) + self.left_out - judged if judged is not None else 0,
        )

    def _beyond(self) -> Draft | None:
        """The draft beyond the committed tokens; None: these answer it. Raises what `check_position` raises."""
        session, total = self.session, len(self.session.tokens)
        check_position(total, session.prompt_len, self.position)
        if session.finish_reason is not None or (not session.strategy.extends and self.position < total):
            return None
        return self.draft.fresh(session.tokens[self.position : total])


def check_number(fresh: int, max_drafts: int) -> None:
    """Raise TooManyDrafts if the `fresh` new draft tokens of a request exceed `max_drafts`."""
    if fresh > max_drafts:
        raise TooManyDrafts(
            f"{fresh} new draft tokens: this verifier judges at most {max_drafts} at once", limit=max_drafts
        )


def check_position(total: int, prompt_len: int, position: int) -> None:
    """Raise PositionInsidePrompt or PositionBeyondCommitted if no response can begin at `position`.

    `total` tokens are committed, of which the first `prompt_len` are the prompt. Both errors carry `total`.
    """
    if position < prompt_len:
        raise PositionInsidePrompt(
            f"position {position} lies inside the prompt of {prompt_len} tokens", total_tokens=total
        )
    if position > total:
        raise PositionBeyondCommitted(
            f"position {position} lies beyond the {total} committed tokens: "
            "send the last position a reply gave, with the whole draft from there",
            total_tokens=total,
        )
