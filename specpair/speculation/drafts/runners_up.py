"""Learn which choice of the drafter is the target's token where its first choice is wrong."""

from collections.abc import Sequence

from specpair.speculation.drafts.logistic_regression import LogisticRegression, chance_of, odds_feature
from specpair.speculation.drafts.tree import TreeNode

_PRIOR = (0.4, 0.15, 0.07)  # shares of rejections in which the runner-up, and each choice after it, is the target's
_FADING = 0.05  # weight of the latest rejection in the shares
# Of the regression: bias, gain of the log-odds, and further bias for each choice after the runner-up. A greedy target's
# choices are about as likely as the drafter says, one that draws under shared noise makes more of unlikely ones.
_WEIGHTS, _PRECISION = (0.0, 0.7, 0.0, 0.0), (1.0, 3.0, 1.0, 1.0)


class RunnersUp:
    """How likely each choice after the first is the target's token where the first is not. Chances are from 0 to 1.

    What the drafter thinks of a choice says most: its part of the probability that the first choice leaves
    (`TreeNode.part`). Where the drafter does not tell it, the choice's rank has to do.
    """

    def __init__(self) -> None:
        self.shares = list(_PRIOR)  # fading, of rejections, by rank
        self._regression = LogisticRegression(_WEIGHTS, _PRECISION)

    def chances(self, children: Sequence[TreeNode]) -> list[float]:
        """For each of the known choices after the first of `children`: its chance, given that the first is wrong."""
        chances, left = [], 1.0
        for rank, (share, node) in enumerate(zip(self.shares, children[1:], strict=False)):
            chance = share if node.part is None else chance_of(self._score(rank, node.part))
            chances.append(min(chance, left))
            left -= chances[-1]
        return chances

    def learn(self, children: Sequence[TreeNode], token: int) -> None:
        """Take in the target's `token`, which the first of `children` is not. It counts from the next `fit` on."""
        for rank, node in enumerate(children[1 : 1 + len(self.shares)]):
            right = node.token == token
            self.shares[rank] += _FADING * (right - self.shares[rank])
            if node.part is not None:
                self._regression.learn(*self._features(rank, node.part), outcome=right)

    def fit(self) -> None:
        """Refit to the outcomes taken in so far."""
        self._regression.fit()

    def _score(self, rank: int, part: float) -> float:
        return sum(
            weight * feature
            for weight, feature in zip(self._regression.weights, self._features(rank, part), strict=True)
        )

    def _features(self, rank: int, part: float) -> tuple[float, ...]:
        return (1.0, odds_feature(part), *(float(rank == later) for later in range(1, len(_PRIOR))))
