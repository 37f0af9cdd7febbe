"""Acceptance by a coin: drafts from q, tokens from p.

A draft d, drawn from q(d), is accepted with probability min(1, p(d) / q(d)); in place of one that is not comes a token
of the residual, max(0, p - q) normalised. Whatever q is, the token that stands there in the end is a sample of p
(Leviathan, Kalman, Matias, arXiv 2211.17192; Chen et al., arXiv 2302.01318).

This needs q whole, the very p that tokens are drawn from (after the filters), and draft, coin and residual
independent of each other: each has noise of its own (`noise.Purpose`).
"""

import numpy as np
from numpy.typing import NDArray

from speculation.acceptance.draft_probs import Weights, normalised
from speculation.sampling import gumbel
from speculation.sampling.distribution import draw
from speculation.sampling.gumbel import Purpose


def coin(seed: int, position: int) -> float:
    """The number in [0, 1) that decides about a draft at `position`."""
    return gumbel.uniform(gumbel.row_key(seed, position, Purpose.COIN))


def decide(p: NDArray[np.float64], draft: int, proposal: Weights, seed: int, position: int) -> int:
    """The token at `position`: the draft if it stands, else one of the residual.

    `p` is the target's distribution, shape (vocab,); `proposal` the one that `draft` was drawn from.
    """
    q = normalised(proposal)
    if coin(seed, position) * q[draft] < p[draft]:
        return draft
    rest = p.copy()
    for token, probability in q.items():
        rest[token] = max(0.0, rest[token] - probability)
    if not rest.any():  # p exceeds q nowhere: they are one distribution but for rounding, and then p is as good
        rest = p
    return draw(rest, gumbel.uniform(gumbel.row_key(seed, position, Purpose.RESIDUAL)))
