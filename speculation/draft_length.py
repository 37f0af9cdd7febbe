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

MAX_AUTO = 24  # drafts; beyond this the chance that all stand no longer pays anywhere we have measured


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to. Times in milliseconds, as the drafter saw them."""

    confidences: Sequence[float]  # of every draft made, sent or not
    agreed: int  # leading drafts that equal committed tokens
    compared: int  # drafts that could be compared: agreed, and one more where the text went on differently
    judged: int  # drafts that the verifier ran its model on
    gained: int  # tokens committed
    draft_ms: float
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

    _PROBES = (4, 1, 6, 2)  # draft lengths of the first rounds: costs of different widths must be seen once
    _SHADOW_EVERY = 8  # while drafting does not pay, one round in so many drafts a token to see whether it would

    def __init__(self) -> None:
        self._rounds = 0
        self._chances = Calibration()
        self._draft_ms = Mean(0.9)
        self._exchange = Line(0.98)
        self._gained = Mean(0.97)
        self._spent = Mean(0.97)

    @property
    def rate(self) -> float:
        """Tokens per millisecond, lately."""
        return self._gained.value / self._spent.value if self._spent.value > 0 else 0.0

    def another(self, confidences: Sequence[float], room: int) -> bool:
        made = len(confidences)
        if made >= min(room, MAX_AUTO):
            return False
        if self._rounds < len(self._PROBES):
            return made < self._PROBES[self._rounds]
        if not made and self._rounds % self._SHADOW_EVERY == 0:
            return True
        chance = self._stands(confidences) * self._chances.average
        return chance > self.rate * (self._draft_ms.value + self._exchange.slope)

    def to_send(self, confidences: Sequence[float]) -> int:
        if self._rounds < len(self._PROBES):
            return len(confidences)
        chance = 1.0
        for count, confidence in enumerate(confidences):
            chance *= self._chances.of(confidence)
            if chance <= self.rate * self._exchange.slope:
                return count
        return len(confidences)

    def learn(self, outcome: Round) -> None:
        self._rounds += 1
        for at in range(outcome.compared):
            self._chances.learn(outcome.confidences[at], at < outcome.agreed)
        if outcome.confidences:
            self._draft_ms.learn(outcome.draft_ms / len(outcome.confidences))
        self._exchange.learn(outcome.judged, outcome.exchange_ms)
        self._gained.learn(outcome.gained)
        self._spent.learn(outcome.draft_ms + outcome.exchange_ms)

    def _stands(self, confidences: Sequence[float]) -> float:
        chance = 1.0
        for confidence in confidences:
            chance *= self._chances.of(confidence)
        return chance


class Calibration:
    """How often drafts stand, by the drafter's confidence: shares in bins, each with a prior of the bin's middle."""

    _BINS = 10
    _KEEP = 0.98  # weight of a bin's past at each new outcome in it
    _PRIOR = 2.0  # outcomes that the prior counts for

    def __init__(self) -> None:
        self._stood = [self._PRIOR * (at + 0.5) / self._BINS for at in range(self._BINS)]
        self._seen = [self._PRIOR] * self._BINS
        self._all = Mean(0.98)

    def of(self, confidence: float) -> float:
        """Chance that a draft of this confidence stands, given that those before it do."""
        at = self._bin(confidence)
        return self._stood[at] / self._seen[at]

    @property
    def average(self) -> float:
        """Chance of a draft that is not made yet."""
        return self._all.value

    def learn(self, confidence: float, stood: bool) -> None:
        at = self._bin(confidence)
        self._stood[at] = self._stood[at] * self._KEEP + stood
        self._seen[at] = self._seen[at] * self._KEEP + 1.0
        self._all.learn(float(stood))

    def _bin(self, confidence: float) -> int:
        return min(self._BINS - 1, max(0, int(confidence * self._BINS)))


class Mean:
    """Mean of what came in, past values fading by `keep` with each new one."""

    def __init__(self, keep: float) -> None:
        self._keep = keep
        self._sum = self._weight = 0.0

    @property
    def value(self) -> float:
        """0.0 before the first."""
        return self._sum / self._weight if self._weight else 0.0

    def learn(self, value: float) -> None:
        self._sum = self._sum * self._keep + value
        self._weight = self._weight * self._keep + 1.0


class Line:
    """Least-squares line through points (x, y), past points fading by `keep` with each new one."""

    def __init__(self, keep: float) -> None:
        self._keep = keep
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    @property
    def slope(self) -> float:
        """Never negative; 0.0 until two different x were seen."""
        spread = self._n * self._xx - self._x * self._x
        if spread <= 1e-9 * max(1.0, self._n):
            return 0.0
        return max(0.0, (self._n * self._xy - self._x * self._y) / spread)

    def learn(self, x: float, y: float) -> None:
        self._n, self._x, self._y = self._n * self._keep + 1.0, self._x * self._keep + x, self._y * self._keep + y
        self._xx, self._xy = self._xx * self._keep + x * x, self._xy * self._keep + x * y
