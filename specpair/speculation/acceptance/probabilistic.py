"""Rejection sampling: accept draft tokens drawn from q so that the committed tokens are samples of p.

A draft token d, drawn from q, is accepted with probability min(1, p(d) / q(d)). Otherwise the recovered token is drawn
from the residual, max(0, p - q) normalised. Whatever q is, the committed token is a sample of p (Leviathan, Kalman,
Matias, arXiv 2211.17192; Chen et al., arXiv 2302.01318).

This needs the complete q, the same p that tokens are drawn from (after the filters), and independent noise for draft,
coin and residual (`gumbel.Purpose`).
"""

import numpy as np
from numpy.typing import NDArray

from specpair.speculation.acceptance.draft_probs import Weights, normalised
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.distribution import draw
from specpair.speculation.sampling.gumbel import Purpose


def coin(seed: int, position: int) -> float:
    """The uniform number in [0, 1) that decides whether the draft token at absolute `position` is accepted."""
    return gumbel.uniform(gumbel.row_key(seed, position, Purpose.COIN))


def decide(p: NDArray[np.float64], draft: int, proposal: Weights, seed: int, position: int) -> int:
    """The token at absolute `position`: the draft token if accepted, else one drawn from the residual.

    `p`: the target's distribution, float64 of shape (vocab,).
    `proposal`: the distribution that `draft` was drawn from.
    """
    q = normalised(proposal)
    if coin(seed, position) * q[draft] < p[draft]:
        return draft
    residual = p.copy()
    for token, probability in q.items():
        residual[token] = max(0.0, residual[token] - probability)
    if not residual.any():  # p and q are equal but for rounding, so a sample of p serves as well
        residual = p
    return draw(residual, gumbel.uniform(gumbel.row_key(seed, position, Purpose.RESIDUAL)))
