"""Interfaces of a run: its verifier, its events (one class each), and its listeners."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from specpair.drafters.base import Expansion
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.acceptance.token_sources import TokenDetails, TokenSource
from specpair.speculation.draft import Draft
from specpair.speculation.policy.schedule import UNSAID, RejectionPolicy, Schedule
from specpair.speculation.policy.verifier_timeline import InFlightDraft


class Verified(Protocol):
    """The verifier's reply to a draft. Times in seconds.

    `tokens`: committed tokens from the draft's position on.
    `accepted`: leading draft tokens that equal committed tokens.
    `judged`: draft tokens that the model ran for this draft.
    `sessions`: those that shared the pass.
    `pass_tokens`: of all sessions in the pass; 0: not known.
    """

    @property
    def tokens(self) -> Sequence[int]: ...
    @property
    def details(self) -> TokenDetails: ...
    @property
    def accepted(self) -> int: ...
    @property
    def judged(self) -> int: ...
    @property
    def queue(self) -> float: ...
    @property
    def forward(self) -> float: ...
    @property
    def sessions(self) -> int: ...
    @property
    def pass_tokens(self) -> int: ...
    @property
    def finish_reason(self) -> str | None: ...


class RunEvent:
    """Something that happened to a text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Sent(RunEvent):
    """A verify request is about to be sent."""

    in_flight_draft: InFlightDraft
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Drafted(RunEvent):
    """A draft step ended.

    `onward`: whether the executor began the next one by itself, as `DraftStep.onward` allows.
    `took`: seconds, which the reactor fills in, since an executor has no clock.
    """

    expansion: Expansion
    onward: bool = False
    took: float = 0.0


@dataclass(frozen=True, slots=True)
class Answered(RunEvent):
    """The verifier's answer to a draft arrived."""

    in_flight_draft: InFlightDraft
    response: Verified


@dataclass(frozen=True, slots=True)
class Streamed(RunEvent):
    """The event stream reported committed tokens, from `position` on, or the end of the text."""

    position: int
    tokens: list[int]
    details: TokenDetails
    finish_reason: str | None
    forward: float | None = None  # seconds of the verifier pass of the last token, if it was self-continuation

    @classmethod
    def end(cls, position: int, finish_reason: str) -> "Streamed":
        """The end of the text behind `position`."""
        return cls(position, [], TokenDetails([]), finish_reason)


@dataclass(frozen=True, slots=True)
class Failed:
    """A thread of the executor failed: no event of the text, which raises the error."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Committed(RunEvent):
    """Committed tokens in order from `position` on, each id with its token source.

    `details`: what else is told of them; None: nothing.
    `schedule`: that of the pair, where a verify request or the event stream brought them.
    `mispredicted`: whether one of them is another than the drafter had predicted, and `next_draft_ready`, whether the
        next draft was ready all the same.
    `rounds`: those that committed the tokens, but for the prefill's pass and self-continuation.
    """

    position: int
    tokens: list[tuple[int, TokenSource]]
    details: TokenDetails | None = None
    schedule: Schedule | None = None
    mispredicted: bool = False
    next_draft_ready: bool = False
    rounds: Sequence[JudgedRound] = ()


Completion = Drafted | Answered | Streamed | Failed  # what an executor reports

# Takes an event and the time at which it came, in seconds on the run's clock. It is called from several threads,
# but never from two at once. The run waits for each call, so a listener has to be fast.
Listener = Callable[[RunEvent, float], None]


def to_all(*listeners: Listener) -> Listener:
    """Return a listener that passes each event to all of `listeners`, in their order."""

    def tell(event: RunEvent, now: float) -> None:
        for listener in listeners:
            listener(event, now)

    return tell


class DraftVerifier(Protocol):
    """Has drafts judged, one at a time. Raises what ends the text."""

    def verify(self, draft: Draft, policy: RejectionPolicy = UNSAID) -> Verified:
        """Send a draft, and return the verifier's reply.

        `policy`: what the verifier does after a rejection.
        """


class VerifierConnection(DraftVerifier, Protocol):
    """A connection to the verifier, for one exchange at a time. Its methods raise what ends the text."""

    def another(self) -> "VerifierConnection":
        """Open another connection, which the caller closes."""

    def connect(self) -> None:
        """Prepare for the first exchange. An error is raised by that exchange, not here."""

    def listen(self, position: int, report: Callable[[Streamed], None]) -> None:
        """Report committed tokens from `position` on, as they come, until the text has ended, or `abort` is called."""

    def abort(self) -> None:
        """Make the exchange under way fail, and every later one. May be called from any thread."""

    def traffic(self) -> tuple[int, int]:
        """The bytes sent and received so far."""

    def close(self) -> None: ...
