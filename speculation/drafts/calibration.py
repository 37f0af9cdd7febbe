"""How likely a draft is to stand, learnt from how drafts of such confidence fared."""

from collections.abc import Sequence
from math import exp, log

import numpy as np
from numpy.typing import NDArray

_SURE = 30.0  # log-odds that are as good as certain


class Calibration:
    """Chance that a draft stands: a logistic regression on the drafter's confidence and on how the last drafts went.

    Confidence alone does not tell: a text has stretches that a drafter follows and others that it does not, and a
    draft behind one that stood is likelier to stand itself. Fitted to the latest outcomes, from a prior that
    believes the drafter about half (a good drafter's agreement is higher than its confidence, a bad one's lower).
    """

    _WINDOW = 200  # outcomes
    _LATEST = 50  # of them, for what is typical
    _CLIP = 4.0  # log-odds; beyond it confidences differ in nothing that matters
    _MEMORY = 0.7  # weight of the past in `_recent`
    _PRIOR = np.array([1.0, 0.5, 0.8])  # bias, gain of the log-odds, gain of `_recent`
    _PRECISION = np.array([0.5, 3.0, 1.0])  # of the prior

    def __init__(self, *, counted: bool = False) -> None:
        """`counted`: confidences are shares of what was right before, and believed as they are until seen otherwise."""
        self._prior = np.array([0.0, 1.0, 0.8]) if counted else self._PRIOR
        self._outcomes = np.empty((self._WINDOW, 4))  # a ring of (1, log-odds, `_recent`, whether it stood)
        self.count = 0  # outcomes seen
        self._weights: list[float] = self._prior.tolist()
        self.recent = 0.0  # how the last drafts went: a fading mean, from -1 (all fell) to 1 (all stood)
        self._typical = float(self._prior[0])  # log-odds that a draft not made yet stands, `_recent` aside

    @property
    def typical(self) -> float:
        """Chance that a draft stands of which nothing is known."""
        return self.chance_of_any(0.0)

    def chance_of_any(self, recent: float) -> float:
        """Chance that a draft stands of which nothing is known but how the last ones went."""
        return 1.0 / (1.0 + exp(-max(self._typical + self._weights[2] * recent, -_SURE)))

    def then(self, recent: float, stood: bool) -> float:
        """`recent` after one more draft."""
        return self._MEMORY * recent + (1.0 - self._MEMORY) * (1.0 if stood else -1.0)

    def chance(self, confidence: float, recent: float) -> float:
        """Chance that a draft stands where all before it are right."""
        bias, gain, habit = self._weights
        return 1.0 / (1.0 + exp(-max(bias + gain * self._odds(confidence) + habit * recent, -_SURE)))

    def path(self, confidences: Sequence[float], ahead: int = 0) -> list[float]:
        """Chance, for each draft and for so many more behind them, that it stands with all before it."""
        bias, gain, habit = self._weights
        recent, chance, chances = self.recent, 1.0, []
        made = [bias + gain * self._odds(confidence) for confidence in confidences]
        for score in [*made, *[self._typical] * ahead]:
            chance /= 1.0 + exp(-max(score + habit * recent, -_SURE))
            recent = self.then(recent, True)
            chances.append(chance)
        return chances

    def learn(self, confidence: float, stood: bool) -> None:
        """Take in one outcome; `fit` makes it count."""
        self._outcomes[self.count % self._WINDOW] = 1.0, self._odds(confidence), self.recent, stood
        self.count += 1
        self.recent = self.then(self.recent, stood)

    def fit(self) -> None:
        """Two Newton steps from the last fit: it moves little from round to round."""
        if not self.count:
            return
        outcomes = self._outcomes[: self.count]
        features, stood = outcomes[:, :3], outcomes[:, 3]
        weights = np.array(self._weights)
        for _ in range(2):
            chances = _logistic(features @ weights)
            gradient = features.T @ (chances - stood) + self._PRECISION * (weights - self._prior)
            curvature = (features.T * (chances * (1.0 - chances))) @ features + np.diag(self._PRECISION)
            weights = weights - np.linalg.solve(curvature, gradient)
        self._weights = weights.tolist()
        latest = np.arange(max(0, self.count - self._LATEST), self.count) % self._WINDOW
        share = float(_logistic(self._outcomes[latest, :2] @ weights[:2]).mean())
        self._typical = log(share / (1.0 - share))

    def _odds(self, confidence: float) -> float:
        p = min(max(confidence, 1e-6), 1.0 - 1e-6)
        return min(max(log(p / (1.0 - p)), -self._CLIP), self._CLIP)


def _logistic(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 / (1.0 + np.exp(-np.clip(scores, -_SURE, _SURE)))
