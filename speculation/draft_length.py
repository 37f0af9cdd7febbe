"""How far to draft. Pure decisions over measured outcomes and times; no clock of its own.

A round of k drafts brings on average 1 + s_1 + … + s_k tokens, s_i being the chance that the first i drafts
stand. Tokens per second over all rounds are greatest when every round maximises (tokens - rate x time), with
`rate` the best rate itself (Dinkelbach's rule for ratios). So one more draft pays exactly when

    chance that it stands  >  rate x (time to draft it + time its verification adds),

and that is decided token by token, from the drafter's own confidence, corrected by how often drafts of such
confidence stood before.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_SURE = 30.0  # log-odds that are as good as certain
MAX_AUTO = 16  # drafts; a longer guess hardly ever stands whole, and stands in the way of other sessions


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

    _START = 3  # drafts at most at first; doubled whenever so many stood, since a long guess may be dear
    _SHADOW = 0.02  # share of the time for drafting a token all the same, to see whether it would pay again

    def __init__(self) -> None:
        self._quiet_ms = 0.0  # exchanges since the last draft
        self._chances = Calibration()
        self._draft_ms = Mean(0.9)
        self._exchange = Curve()
        self._price = 0.0  # tokens that a millisecond is worth: the best rate
        self._most = self._START

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
            self._draft_ms.learn(outcome.draft_ms / len(outcome.confidences))
            self._quiet_ms = 0.0
        self._quiet_ms += outcome.exchange_ms
        self._exchange.learn(outcome.judged, outcome.exchange_ms)
        self._price = self._best_rate()

    def _shadow_is_due(self) -> bool:
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


class Calibration:
    """Chance that a draft stands: a logistic regression on the drafter's confidence and on how the last drafts went.

    Confidence alone does not tell: a text has stretches that a drafter follows and others that it does not, and a
    draft behind one that stood is likelier to stand itself. Fitted to the latest outcomes, from a prior that
    believes the drafter about half (a good drafter's agreement is higher than its confidence, a bad one's lower).
    """

    _WINDOW = 200  # outcomes
    _CLIP = 4.0  # log-odds; beyond it confidences differ in nothing that matters
    _MEMORY = 0.7  # weight of the past in `_recent`
    _PRIOR = np.array([1.0, 0.5, 0.8])  # bias, gain of the log-odds, gain of `_recent`
    _PRECISION = np.array([0.5, 3.0, 1.0])  # of the prior

    def __init__(self) -> None:
        self._outcomes: deque[tuple[float, float, bool]] = deque(maxlen=self._WINDOW)
        self._weights = self._PRIOR.copy()
        self._recent = 0.0  # fading mean over the last outcomes, from -1 (all fell) to 1 (all stood)
        self._typical = float(self._PRIOR[0])  # log-odds that a draft not made yet stands, `_recent` aside

    def path(self, confidences: Sequence[float], ahead: int = 0) -> list[float]:
        """Chance, for each draft and for so many more behind them, that it stands with all before it."""
        bias, gain, habit = self._weights.tolist()
        recent, chance, chances = self._recent, 1.0, []
        made = [bias + gain * self._odds(confidence) for confidence in confidences]
        for score in [*made, *[self._typical] * ahead]:
            chance /= 1.0 + exp(-max(score + habit * recent, -_SURE))
            recent = self._MEMORY * recent + 1.0 - self._MEMORY
            chances.append(chance)
        return chances

    def learn(self, confidence: float, stood: bool) -> None:
        """Take in one outcome; `fit` makes it count."""
        self._outcomes.append((self._odds(confidence), self._recent, stood))
        self._recent = self._MEMORY * self._recent + (1.0 - self._MEMORY) * (1.0 if stood else -1.0)

    def fit(self) -> None:
        """Two Newton steps from the last fit: it moves little from round to round."""
        if not self._outcomes:
            return
        odds, recent, stood = np.array(self._outcomes, dtype=np.float64).T
        features = np.stack([np.ones_like(odds), odds, recent], axis=1)
        for _ in range(2):
            chances = _logistic(features @ self._weights)
            gradient = features.T @ (chances - stood) + self._PRECISION * (self._weights - self._PRIOR)
            curvature = (features.T * (chances * (1.0 - chances))) @ features + np.diag(self._PRECISION)
            self._weights = self._weights - np.linalg.solve(curvature, gradient)
        lately = features[-50:, :2] @ self._weights[:2]
        share = float(_logistic(lately).mean())
        self._typical = log(share / (1.0 - share))

    def _odds(self, confidence: float) -> float:
        p = min(max(confidence, 1e-6), 1.0 - 1e-6)
        return min(max(log(p / (1.0 - p)), -self._CLIP), self._CLIP)


def _logistic(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 / (1.0 + np.exp(-np.clip(scores, -_SURE, _SURE)))


class Mean:
    """Mean of what came in, past values fading by `keep` with each new one."""

    def __init__(self, keep: float) -> None:
        self._keep = keep
        self._sum = self.weight = 0.0  # `weight`: how many, the faded ones in part

    @property
    def value(self) -> float:
        """0.0 before the first."""
        return self._sum / self.weight if self.weight else 0.0

    def learn(self, value: float) -> None:
        self._sum = self._sum * self._keep + value
        self.weight = self.weight * self._keep + 1.0


class Curve:
    """Milliseconds of an exchange by the drafts in it: a line through all that was seen, bent to each own mean.

    Real costs have steps (a kernel takes four tokens at a time, say), which a line alone would miss.
    """

    _TRUST = 2.0  # outcomes of one length that the line counts for there

    def __init__(self) -> None:
        self._line = Line(0.98)
        self._own: dict[int, Mean] = {}

    def at(self, count: int) -> float:
        """0.0 before the first outcome."""
        line = self._line.at(count)
        own = self._own.get(count)
        if own is None:
            return line
        return (own.value * own.weight + line * self._TRUST) / (own.weight + self._TRUST)

    def learn(self, count: int, milliseconds: float) -> None:
        self._line.learn(count, milliseconds)
        self._own.setdefault(count, Mean(0.9)).learn(milliseconds)


class Line:
    """Least-squares line through points (x, y), past points fading by `keep` with each new one.

    Before points of different x are seen the slope is a guess: a tenth of the height, an engine whose passes are
    neither free nor dear to widen.
    """

    _GUESS = 0.1  # slope over mean y
    _TRUST = 2.0  # spread of x (sum of squared deviations) that the guess counts for

    def __init__(self, keep: float) -> None:
        self._keep = keep
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    @property
    def slope(self) -> float:
        """Never negative; 0.0 before the first point."""
        if not self._n:
            return 0.0
        spread = self._xx - self._x * self._x / self._n
        tilt = self._xy - self._x * self._y / self._n
        guess = self._GUESS * self._y / self._n
        return max(0.0, (tilt + self._TRUST * guess) / (spread + self._TRUST))

    def at(self, x: float) -> float:
        """Height at `x`, never below a tenth of the mean height; 0.0 before the first point."""
        if not self._n:
            return 0.0
        mean = self._y / self._n
        return max(0.1 * mean, mean + self.slope * (x - self._x / self._n))

    def learn(self, x: float, y: float) -> None:
        self._n, self._x, self._y = self._n * self._keep + 1.0, self._x * self._keep + x, self._y * self._keep + y
        self._xx, self._xy = self._xx * self._keep + x * x, self._xy * self._keep + x * y
