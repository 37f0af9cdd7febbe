"""Logistic regression on the latest outcomes, with a prior."""

from collections.abc import Sequence
from math import exp, log

import numpy as np
from numpy.typing import NDArray

_WINDOW = 200  # latest outcomes that a regression is fitted to
_SURE = 30.0  # log-odds that are as good as certain
_CLIP = 4.0  # log-odds beyond which a probability, as a feature, makes no difference


class LogisticRegression:
    """The chance of an outcome by its features, fitted to the latest outcomes."""

    def __init__(self, prior: Sequence[float], precision: Sequence[float]) -> None:
        """`prior`, `precision`: means and inverse variances of the weights, one for each feature."""
        self._prior, self._precision = np.array(prior), np.array(precision)
        self._outcomes = np.empty((_WINDOW, len(prior) + 1))  # a ring of features and outcome
        self.count = 0  # outcomes seen
        self._fitted = 0  # of them, at the last fit
        self.weights: list[float] = self._prior.tolist()

    def learn(self, *features: float, outcome: bool) -> None:
        """Take in an outcome. It counts from the next `fit` on."""
        self._outcomes[self.count % _WINDOW] = *features, outcome
        self.count += 1

    def fit(self) -> bool:
        """Refit by two Newton steps from the last fit, which suffice because it moves little from round to round.

        Returns whether there was anything new.
        """
        if self.count == self._fitted:
            return False
        self._fitted = self.count
        outcomes = self._outcomes[: self.count]
        features, happened = outcomes[:, :-1], outcomes[:, -1]
        weights = np.array(self.weights)
        for _ in range(2):
            chances = logistic(features @ weights)
            gradient = features.T @ (chances - happened) + self._precision * (weights - self._prior)
            curvature = (features.T * (chances * (1.0 - chances))) @ features + np.diag(self._precision)
            weights = weights - np.linalg.solve(curvature, gradient)
        self.weights = weights.tolist()
        return True

    def latest(self, most: int) -> NDArray[np.float64]:
        """The features of the `most` latest outcomes, shape (n, features)."""
        rows = np.arange(max(0, self.count - _WINDOW, self.count - most), self.count) % _WINDOW
        return self._outcomes[rows, :-1]


def odds_feature(probability: float) -> float:
    """The log-odds of a probability, as a feature."""
    p = min(max(probability, 1e-6), 1.0 - 1e-6)
    return min(max(log_odds(p), -_CLIP), _CLIP)


def chance_of(score: float) -> float:
    """The probability of these log-odds."""
    return 1.0 / (1.0 + exp(-max(score, -_SURE)))


def log_odds(chance: float) -> float:
    return log(chance / (1.0 - chance))


def logistic(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """`chance_of` of each."""
    return 1.0 / (1.0 + np.exp(-np.clip(scores, -_SURE, _SURE)))
