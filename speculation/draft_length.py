"""How far to draft. Pure decisions over measured outcomes and times; no clock of its own.

A round of k drafts brings on average 1 + s_1 + … + s_k tokens, s_i being the chance that the first i drafts
stand. Tokens per second over all rounds are greatest when every round maximises (tokens - rate x time), with
`rate` the best rate itself (Dinkelbach's rule for ratios). So one more draft pays exactly when

    chance that it stands  >  rate x (time to draft it + time its verification adds),

and that is decided token by token, from the drafter's own confidence, corrected by how often drafts of such
confidence stood before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from speculation.calibration import Calibration
from speculation.estimates import Curve, Mean

MAX_AUTO = 16  # drafts; a longer guess hardly ever stands whole, and stands in the way of other sessions


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to. Times in milliseconds, as the drafter saw them."""

    confidences: Sequence[float]  # of every draft made, sent or not
    agreed: int  # leading drafts that equal committed tokens
    compared: int  # drafts that could be compared: agreed, and one more where the text went on differently
    judged: int  # drafts that the verifier ran its model on
    draft_ms: float
    first_ms: float  # of `draft_ms`, until the first draft was there: the drafter may have much to read before it
    exchange_ms: float


class DraftLength(Protocol):
    """Decides within a round, draft by draft."""

    def another(self, confidences: Sequence[float], room: int) -> bool:
        """Whether to draft one more after drafts of these confidences; `room` is how many may be sent at all."""

    def to_send(self, confidences: Sequence[float]) -> int:
        """How many of the drafts made to send."""

    def learn(self, outcome: Round) -> None:
        """Take in how a round went."""


class Fixed:
    """Always k drafts."""

    def __init__(self, k: int) -> None:
        if k < 0:
            raise ValueError(f"a draft length cannot be negative, got {k}")
        self.k = k

    def another(self, confidences: Sequence[float], room: int) -> bool:
        return len(confidences) < min(self.k, room)

    def to_send(self, confidences: Sequence[float]) -> int:
        return len(confidences)

    def learn(self, outcome: Round) -> None:
        pass  # nothing depends on it


class Adaptive:
    """The rule of this module over running estimates, each forgetting at its own pace."""

    _START = 3  # drafts at most at first; doubled whenever so many stood, since a long guess may be dear
    _START_INFORMED = 6  # the same where it is known how dear
    _SHADOW = 0.02  # share of the time for drafting a token all the same, to see whether it would pay again

    def __init__(self, pass_ms: Sequence[float] = ()) -> None:
        """`pass_ms`: what the verifier says a pass over 1, 2, … tokens takes it; a single one tells nothing."""
        self._quiet_ms, self._quiet_rounds = 0.0, 0  # exchanges since the last draft
        self._chances = Calibration()
        self._draft_ms = Mean(0.9)
        self._exchange = Curve(pass_ms)
        self._price = 0.0  # tokens that a millisecond is worth: the best rate
        self._most = self._START_INFORMED if len(pass_ms) > 1 else self._START

    def another(self, confidences: Sequence[float], room: int) -> bool:
        made = len(confidences)
        if made >= min(room, self._most):
            return False
        if not made and self._shadow_is_due():
            return True
        # One more may not pay by itself and still be on the way to a width that does: a pass of four tokens can cost
        # hardly more than one of three.
        gain = spent = 0.0
        for count, chance in enumerate(self._chances.path(confidences, self._most - made)[made:], made + 1):
            gain += chance
            spent += self._draft_ms.value
            if gain > self._price * (spent + self._exchange.at(count) - self._exchange.at(made)):
                return True
        return False

    def to_send(self, confidences: Sequence[float]) -> int:
        best, best_value, gain = 0, -self._price * self._exchange.at(0), 0.0
        for count, chance in enumerate(self._chances.path(confidences), 1):
            gain += chance
            value = gain - self._price * self._exchange.at(count)
            if value > best_value:
                best, best_value = count, value
        return best

    def learn(self, outcome: Round) -> None:
        for at in range(outcome.compared):
            self._chances.learn(outcome.confidences[at], at < outcome.agreed)
        self._chances.fit()
        if outcome.agreed >= self._most:
            self._most = min(2 * self._most, MAX_AUTO)
        if outcome.confidences:
            self._learn_draft_ms(outcome)
            self._quiet_ms = 0.0
            self._quiet_rounds = 0
        self._quiet_ms += outcome.exchange_ms
        self._quiet_rounds += 1
        self._exchange.learn(outcome.judged, outcome.exchange_ms)
        self._price = self._best_rate()

    def _learn_draft_ms(self, outcome: Round) -> None:
        """Take in what one more draft takes, without what comes before the first: a prompt, a text to catch up on."""
        more = len(outcome.confidences) - 1
        if more:
            self._draft_ms.learn((outcome.draft_ms - outcome.first_ms) / more)
        elif self._draft_ms.weight:  # a draft alone: how much of its time was reading can only be guessed
            self._draft_ms.learn(min(outcome.draft_ms, self._draft_ms.value * (1.0 if self._quiet_rounds > 1 else 2.0)))

    def _shadow_is_due(self) -> bool:
        # Catching up is not in this account: every token is read once, whether early or late.
        return self._quiet_ms * self._SHADOW >= self._draft_ms.value

    def _best_rate(self) -> float:
        """Tokens per millisecond of the best fixed draft length under the present estimates.

        A forecast rather than the measured rate, which lags, and is high or low by the luck of a few rounds.
        """
        tokens = 1.0
        best = tokens / self._exchange.at(0)
        for count, chance in enumerate(self._chances.path((), self._most), 1):
            tokens += chance
            best = max(best, tokens / (self._exchange.at(count) + count * self._draft_ms.value))
        return best
