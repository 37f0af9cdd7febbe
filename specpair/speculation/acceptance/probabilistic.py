"""Rejection sampling: accept draft tokens drawn from q so that the committed tokens are samples of p.

A draft token d, drawn from q, is accepted with probability min(1, p(d) / q(d)). Otherwise the recovered token is drawn
from the residual, max(0, p - q) normalised. Whatever q is, the committed token is a sample of p (Leviathan, Kalman,
Matias, arXiv 2211.17192; Chen et al., arXiv 2302.01318).

Several draft tokens for one position, as in a tree, are judged one after the other, each against the residual that the
rejected ones before it have left. Each needs the distribution that it was drawn from, given those before it: for draws
without replacement, q without their ids (Miao et al., SpecInfer, arXiv 2305.09781).

This needs the complete q, the same p that tokens are drawn from (after the filters), and independent noise for draft,
coin and residual (`gumbel.Purpose`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specpair.speculation.acceptance.draft_probs import Weights, normalised
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.distribution import draw
from specpair.speculation.sampling.gumbel import Purpose


def coin(seed: int, position: int, number: int = 0) -> float:
    """The uniform number in [0, 1) that decides whether the draft token at absolute `position` is accepted, of several
    the one with this `number`, from 0."""
    return gumbel.uniform(gumbel.row_key(seed, position, Purpose.COIN), number)


def decide(p: NDArray[np.float64], drafts: Sequence[tuple[int, Weights]], seed: int, position: int) -> int:
    """The token at absolute `position`: the first draft token that is accepted, else one drawn from the residual.

    `p`: the target's distribution, float64 of shape (vocab,).
    `drafts`: draft tokens for this position, in the order in which they were drawn, each with the distribution that it
        was drawn from.
    """
    for number, (draft, proposal) in enumerate(drafts):
        if number:
            p = p / p.sum()
        q = normalised(proposal)
        if coin(seed, position, number) * q[draft] < p[draft]:
            return draft
        p = residual(p, q)
    return draw(p, gumbel.uniform(gumbel.row_key(seed, position, Purpose.RESIDUAL)))


def residual(p: NDArray[np.float64], q: Weights) -> NDArray[np.float64]:
    """What is left of `p` once a draft token drawn from `q` is rejected, not normalised."""
    left = p.copy()
    for token, probability in q.items():
        left[token] = max(0.0, left[token] - probability)
    return left if left.any() else p  # p and q are equal but for rounding, so a sample of p serves as well
