"""Learn how likely a draft token is accepted, from the outcomes of tokens with similar confidence, by kind of token.

Also learn which choice of the drafter is the target's token where its first choice is wrong.
"""

from collections.abc import Sequence
from copy import deepcopy
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from specpair.speculation.draft import DraftSource
from specpair.speculation.drafting.tree import TreeNode

_WINDOW = 200  # latest outcomes that a regression is fitted to
_SURE = 30.0  # log-odds that are as good as certain
_CLIP = 4.0  # log-odds beyond which a probability, as a feature, makes no difference


class LogisticRegression:
    """Logistic regression of an outcome on its features, fitted to the latest outcomes."""

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


# Shares of rejections in which the runner-up, and each choice after it, is the target's token.
_PRIOR = (0.4, 0.15, 0.07, 0.05, 0.03)
_FADING = 0.05  # weight of the latest rejection in the shares
# Of the regression: gain of the log-odds, and a bias for each rank. A greedy target's choices are about as likely as
# the drafter says, one that draws under shared noise makes more of unlikely ones.
_GAIN, _GAIN_PRECISION, _BIAS_PRECISION = 0.7, 3.0, 1.0
_RANKS = [tuple(float(rank == other) for other in range(len(_PRIOR))) for rank in range(len(_PRIOR))]


class RunnersUp:
    """The chance, 0 to 1, that each choice after the first is the target's token, given that the first is wrong.

    What the drafter thinks of a choice says most: its part of the probability that the first choice leaves
    (`TreeNode.part`). Where the drafter does not tell it, the choice's rank has to do.
    """

    def __init__(self) -> None:
        self.shares = list(_PRIOR)  # fading, of rejections, by rank
        ranks = len(_PRIOR)
        self._regression = LogisticRegression((_GAIN, *[0.0] * ranks), (_GAIN_PRECISION, *[_BIAS_PRECISION] * ranks))

    def chances(self, children: Sequence[TreeNode]) -> list[float]:
        """The chance of each choice after the first of `children`, given that the first is wrong."""
        chances, left = [], 1.0
        gain, *biases = self._regression.weights
        for share, bias, node in zip(self.shares, biases, children[1:], strict=False):
            if node.part is not None:
                share = chance_of(bias + gain * odds_feature(node.part))
            chances.append(min(share, left))
            left -= chances[-1]
        return chances

    def learn(self, children: Sequence[TreeNode], token: int) -> None:
        """Take in the target's `token`, which the first of `children` is not. It counts from the next `fit` on."""
        for rank, node in enumerate(children[1 : 1 + len(self.shares)]):
            right = node.token == token
            self.shares[rank] += _FADING * (right - self.shares[rank])
            if node.part is not None:
                self._regression.learn(odds_feature(node.part), *_RANKS[rank], outcome=right)

    def fit(self) -> None:
        self._regression.fit()


_MEMORY = 0.7  # weight of the past in `recent`
_OPTIMISTIC, _TRIES = 0.97, 4.0  # optimistic prior chance of the draft model's tokens, and how many it counts for


def recent_after(recent: float, accepted: bool) -> float:
    """The fading mean outcome `recent` of the last draft tokens, -1 to 1, after the outcome of one more."""
    return _MEMORY * recent + (1.0 - _MEMORY) * (1.0 if accepted else -1.0)


class Calibration:
    """Logistic regression of acceptance on confidence, on the last outcomes, and on a second opinion.

    The confidence of a draft token is the drafter's probability of it, its outcome is whether it was accepted.
    Confidence alone does not suffice: a drafter follows some stretches of a text and not others, so a token behind an
    accepted one is likelier to be accepted itself. And where draft model and lookup have the same token it is likelier,
    where they have different ones each is less likely (`TreeNode.second_opinion`). The regression is fitted to the
    latest outcomes. Its prior weighs the drafter's confidence by half (a good drafter is accepted more often than its
    confidence says, a bad one less).
    """

    _LATEST = 50  # latest outcomes of the text that the typical chance is taken from
    _GIVEN = 4.0  # how many outcomes the typical chance counts for that earlier texts have taught
    _PRIOR = (1.0, 0.5, 0.8, 1.0)  # bias, gains of the log-odds, of `recent` and of the second opinion
    _PRECISION = (0.5, 3.0, 1.0, 0.5)  # inverse variances of the prior

    def __init__(self, *, counted: bool = False) -> None:
        """`counted`: confidences are measured shares of right predictions, which the prior takes as they are."""
        prior = (0.0, 1.0, 0.8, 1.0) if counted else self._PRIOR
        self._regression = LogisticRegression(prior, self._PRECISION)
        self.recent = 0.0  # fading mean outcome of the last draft tokens, from -1 (rejected) to 1 (accepted)
        self._first = self._typical = prior[0]  # log-odds of acceptance at unknown confidence, at `recent` 0
        self._begun, self._given = 0, 0.0  # of earlier texts: how many outcomes they had, and their typical chance

    def begin_text(self) -> None:
        """Begin another text: keep the calibration, reset the mean of the latest outcomes.

        Where draft tokens were accepted less often than expected, half of the prior's confidence comes back: a drafter
        may suit this text better, or have learnt since, and only trying shows it.
        """
        self.recent = 0.0  # the other calibration's outcomes count in it, too
        if not self.count:
            return
        self._begun = self.count
        self._given = max(self.typical, (self.typical + chance_of(self._first)) / 2)
        self._typical = log_odds(self._given)

    @property
    def count(self) -> int:
        return self._regression.count

    @property
    def typical(self) -> float:
        """Chance of acceptance, 0 to 1, where neither the confidence nor the last outcomes are known."""
        return self.chance_of_any(0.0)

    def chance_of_any(self, recent: float) -> float:
        """Chance of acceptance, 0 to 1, where only the last outcomes are known."""
        return chance_of(self._typical + self._regression.weights[2] * recent)

    def chance(self, confidence: float, recent: float, second_opinion: float = 0.0) -> float:
        """Chance that a draft token is accepted if all before it are. `second_opinion`: as in `TreeNode`."""
        bias, gain, recent_gain, opinion_gain = self._regression.weights
        score = bias + gain * odds_feature(confidence) + recent_gain * recent + opinion_gain * second_opinion
        return chance_of(score)

    def path(self, nodes: Sequence[TreeNode], ahead: int = 0) -> list[float]:
        """For each draft token, and for `ahead` further ones: chance that it and all before it are accepted."""
        bias, gain, recent_gain, opinion_gain = self._regression.weights
        recent, chance, chances = self.recent, 1.0, []
        made = [bias + gain * odds_feature(node.confidence) + opinion_gain * node.second_opinion for node in nodes]
        for score in [*made, *[self._typical] * ahead]:
            chance *= chance_of(score + recent_gain * recent)
            recent = recent_after(recent, True)
            chances.append(chance)
        return chances

    def learn(self, confidence: float, accepted: bool, second_opinion: float = 0.0) -> None:
        """Take in the outcome of one draft token. It counts from the next `fit` on."""
        self._regression.learn(1.0, odds_feature(confidence), self.recent, second_opinion, outcome=accepted)
        self.recent = recent_after(self.recent, accepted)

    def fit(self) -> None:
        if not self._regression.fit():
            return
        latest = self._regression.latest(min(self._LATEST, self.count - self._begun))
        chances = logistic(latest[:, :2] @ self._regression.weights[:2])
        weight = self._GIVEN if self._begun else 0.0
        self._typical = log_odds((float(chances.sum()) + weight * self._given) / (len(latest) + weight))


class AcceptanceModel:
    """A calibration for each kind of draft token. They share `recent`. All chances are from 0 to 1."""

    def __init__(self) -> None:
        self.model = Calibration()
        self._calibrations = {DraftSource.MODEL: self.model, DraftSource.HEAD: Calibration()}
        self._calibrations |= {source: Calibration(counted=True) for source in DraftSource if source.looked_up}
        self.runners_up = RunnersUp()

    def for_another_text(self) -> "AcceptanceModel":
        """A copy for another text, without the mean of the latest outcomes."""
        other = deepcopy(self)
        for each in other._calibrations.values():
            each.begin_text()
        return other

    @property
    def recent(self) -> float:
        """Fading mean outcome of the last draft tokens of all kinds, from -1 (rejected) to 1 (accepted)."""
        return self.model.recent

    @recent.setter
    def recent(self, value: float) -> None:
        for each in self._calibrations.values():
            each.recent = value

    def chance(self, node: TreeNode, recent: float) -> float:
        """Chance that the draft token at `node` is accepted if all before it are."""
        if node.source is DraftSource.GRAMMAR:
            return 1.0
        return self._calibrations[node.source].chance(node.confidence, recent, node.second_opinion)

    def typical(self, source: DraftSource) -> float:
        """Chance that the next token of a source is accepted, where its confidence is not known yet."""
        return self._calibrations[source].typical

    def path(self, path: Sequence[TreeNode], ahead: int = 0, source: DraftSource = DraftSource.MODEL) -> list[float]:
        """For each node of a path, and for `ahead` further tokens of `source`: chance that it and all before it are
        accepted."""
        if all(node.source is source for node in path):
            return self._calibrations[source].path(path, ahead)
        chances, chance, recent = [], 1.0, self.recent
        for node in path:
            chance *= self.chance(node, recent)
            recent = recent_after(recent, True)
            chances.append(chance)
        for _ in range(ahead):
            chance *= self.typical(source)
            chances.append(chance)
        return chances

    def optimistic_chance(self, recent: float) -> float:
        """Chance that the draft model's next token is accepted; optimistic while few of its tokens were compared."""
        tried, known = self.model.count, self.model.chance_of_any(recent)
        return (known * tried + _OPTIMISTIC * _TRIES) / (tried + _TRIES)

    def learn(self, node: TreeNode, accepted: bool) -> None:
        """Take in whether the draft token at `node` was accepted. The outcome counts from the next `fit` on."""
        if node.source is DraftSource.GRAMMAR:
            return
        learnt = self._calibrations[node.source]
        learnt.learn(node.confidence, accepted, node.second_opinion)
        self.recent = learnt.recent

    def fit(self) -> None:
        """Refit all calibrations to the outcomes taken in so far."""
        for each in self._calibrations.values():
            each.fit()
        self.runners_up.fit()
