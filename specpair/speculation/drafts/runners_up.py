"""Learn which choice of the drafter is the target's token where its first choice is wrong."""

from collections.abc import Sequence

from specpair.speculation.drafts.logistic_regression import LogisticRegression, chance_of, odds_feature
from specpair.speculation.drafts.tree import TreeNode

# Shares of rejections in which the runner-up, and each choice after it, is the target's token.
_PRIOR = (0.4, 0.15, 0.07, 0.05, 0.03)
_FADING = 0.05  # weight of the latest rejection in the shares
# Of the regression: gain of the log-odds, and a bias for each rank. A greedy target's choices are about as likely as
# the drafter says, one that draws under shared noise makes more of unlikely ones.
_GAIN, _GAIN_PRECISION, _BIAS_PRECISION = 0.7, 3.0, 1.0
_RANKS = [tuple(float(rank == other) for other in range(len(_PRIOR))) for rank in range(len(_PRIOR))]


class RunnersUp:
    """How likely each choice after the first is the target's token where the first is not. Chances are from 0 to 1.

    What the drafter thinks of a choice says most: its part of the probability that the first choice leaves
    (`TreeNode.part`). Where the drafter does not tell it, the choice's rank has to do.
    """

    def __init__(self) -> None:
        self.shares = list(_PRIOR)  # fading, of rejections, by rank
        ranks = len(_PRIOR)
        self._regression = LogisticRegression((_GAIN, *[0.0] * ranks), (_GAIN_PRECISION, *[_BIAS_PRECISION] * ranks))

    def chances(self, children: Sequence[TreeNode]) -> list[float]:
        """For each of the known choices after the first of `children`: its chance, given that the first is wrong."""
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
        """Refit to the outcomes taken in so far."""
        self._regression.fit()
