"""A guess on its way through the verifier, and what it came to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from speculation.acceptance.draft_probs import Weights
from speculation.acceptance.strategies import Strategy, common_prefix
from speculation.errors import SpecPairError, TooManyDrafts
from speculation.protocol.positions import fresh_drafts
from verifier_server.sessions import Session


@dataclass(slots=True)
class Answer:
    """What a guess came to; the reply to `/verify` says the same."""

    position: int
    tokens: list[int]  # committed from `position` on
    accepted: int  # leading drafts equal to committed tokens; none by a strategy that accepts none
    judged: int  # drafts the model ran for this answer
    total_tokens: int
    finish_reason: str | None
    queue_ms: float  # all of the wait, where another guess's pass brought the answer
    forward_ms: float  # in passes that ran this very guess; 0: the model never did
    sessions: int = 0  # that shared the last of them
    decisions: list[dict[str, Any] | None] | None = None  # on each of `tokens`, as replies carry them, where asked for
    unjudged: int = 0  # drafts at the end of those that were new, for which the session's credit did not suffice

    @property
    def timing(self) -> dict[str, float]:
        """The times as replies carry them."""
        return {
            "queue_ms": round(self.queue_ms, 3),
            "forward_ms": round(self.forward_ms, 3),
            "sessions": self.sessions,
        }


Told = Callable[[Answer | SpecPairError], None]  # called with each answer, from any thread


@dataclass(eq=False, slots=True)
class Request:
    """A guess waiting for its answer. `done` is called once, from the engine's thread.

    With `until_end` the session is decoded to its end, and `done` is called after every pass. Times in seconds.
    """

    session: Session
    position: int
    drafts: list[int]
    done: Told
    until_end: bool = False
    next_in: float | None = None  # from the answer to the arrival of the session's next guess, as its client expects
    goes_on: bool | None = None  # whether the session may take steps of its own from here on; None: as before
    resumes: bool = False  # of a text that was let in: the bound on what may wait is for others
    proposals: list[Weights] = field(default_factory=list)  # what each draft was drawn from, or nothing
    cancelled: bool = False  # nobody waits for the answer any more; set from any thread
    submitted: float = 0.0
    started: float | None = None  # when the first pass that ran it began
    forward: float = 0.0  # in such passes
    sessions: int = 0  # in the last of them
    number: int = 0  # its place in the order of arrival
    since: float = 0.0  # when it took that place
    fresh: list[int] = field(default_factory=list)  # what of it goes beyond the record, as of the last placing
    fresh_proposals: list[Weights] = field(default_factory=list)  # of these
    closed: bool = False  # its last answer was given

    def same_as(self, other: "Request") -> bool:
        """Whether the two say the same, whoever asks."""
        return (self.position, self.drafts, self.proposals) == (other.position, other.drafts, other.proposals)

    def place(self, max_drafts: int, first: bool) -> bool:
        """Compare the guess with what is committed by now; False where the record holds the whole answer.

        `fresh` may stay longer than `max_drafts` while the guess is not `first` of its session: what an earlier one
        will have committed does not count. Raises TooManyDrafts, PositionInsidePrompt, PositionBeyondCommitted.
        """
        session = self.session
        finished = session.finish_reason is not None
        fresh = fresh_drafts(session.tokens, session.prompt_len, finished, self.position, self.drafts)
        if fresh is None or (not session.strategy.extends and self.position < len(session.tokens)):
            return False
        if len(fresh) <= max_drafts:
            # The last place before the limit is the target's own: a draft there would be judged for nothing.
            fresh = fresh[: session.limit - len(session.tokens) - 1]
        elif first:
            check_number(len(fresh), max_drafts)
        self.fresh, self.fresh_proposals = fresh, self.proposals[: len(fresh)]
        return True

    def answer(self, now: float, judged: int | None) -> Answer:
        """What the record says to this guess. `judged`: its drafts that the pass judged which has brought the answer;
        None: it was another guess's pass, or none, so that each pass is told of in one answer."""
        session, ran = self.session, judged is not None
        tokens = session.tokens[self.position :]
        return Answer(
            position=self.position,
            tokens=tokens,
            accepted=0 if session.strategy is Strategy.GREEDY else common_prefix(tokens, self.drafts),
            judged=judged or 0,
            total_tokens=len(session.tokens),
            finish_reason=session.finish_reason,
            queue_ms=1e3 * ((self.started if ran and self.started is not None else now) - self.submitted),
            forward_ms=1e3 * self.forward if ran else 0.0,
            sessions=self.sessions if ran else 0,
            decisions=session.decided(self.position, len(session.tokens)),
            unjudged=len(self.fresh) - judged if judged is not None else 0,
        )


def check_number(fresh: int, max_drafts: int) -> None:
    """Raise TooManyDrafts, with the limit, for more `fresh` drafts than are judged at once."""
    if fresh > max_drafts:
        raise TooManyDrafts(f"{fresh} new drafts, this verifier judges at most {max_drafts} at once", limit=max_drafts)
