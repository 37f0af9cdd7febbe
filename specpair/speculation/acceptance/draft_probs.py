"""The distribution q of a drawn draft token: a few ids with weights, small enough to travel in the verify request.

A drafter's distribution is cut to its likeliest ids and rounded, and the draft token is drawn from exactly what is
sent. So q is complete, however small a part of the drafter's distribution it covers. Both ends normalise the weights by
the same exactly rounded sum, and so have exactly the same q.
"""

import math
from collections.abc import Mapping

import numpy as np

from specpair.speculation.sampling import full_logits, gumbel
from specpair.speculation.sampling.distribution import draw
from specpair.speculation.sampling.gumbel import Purpose
from specpair.speculation.sampling.sampling import Row, Sampling
from specpair.speculation.sampling.top_logits import TopLogits

Weights = Mapping[int, float]  # token id -> weight, ids ascending; the weights sum to 1 but for rounding

MOST_IDS = 32  # most ids that a drafter sends for a draft token; less likely ids hardly ever make a difference
_LEAST = 1e-5  # least weight of an id that is sent
_DIGITS = 6  # significant digits of a weight


def normalised(weights: Weights) -> dict[int, float]:
    """`weights` divided by their sum."""
    total = math.fsum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def propose(row: Row, sampling: Sampling) -> Weights:
    """The distribution to draw a draft token from: the row's likeliest ids under `sampling`, cut and rounded.

    A single id where `sampling` is greedy. Raises ValueError where the row holds a NaN or no finite value.
    """
    if isinstance(row, TopLogits):
        row.check()
        ids, logits = row.ids, row.logits
    else:
        full_logits.likeliest(row)  # raises for an invalid row
        ids = full_logits.top_ids(row, min(max(MOST_IDS, sampling.top_k), len(row)))
        logits = row[ids]
    most = 1 if sampling.greedy else sampling.top_k or len(ids)
    scaled = logits[:most].astype(np.float64) / sampling.softmax_temperature
    if sampling.top_p < 1.0:
        total = None if sampling.top_k else _mass(row, sampling, float(scaled[0]))
        scaled = scaled[: full_logits.nucleus_size(scaled, sampling.top_p, total)]
    mass = np.exp(scaled[:MOST_IDS] - scaled[0])
    pairs = zip(ids.tolist(), (mass / mass.sum()).tolist(), strict=False)
    return {token: float(f"{weight:.{_DIGITS}g}") for token, weight in sorted(pairs) if weight >= _LEAST}


def drawn_from(weights: Weights, seed: int, position: int, number: int = 0) -> int:
    """The draft token for absolute `position`, drawn from `weights`. `number`: which of several at that position."""
    u = gumbel.uniform(gumbel.row_key(seed, position, Purpose.DRAFT), number)
    return list(weights)[draw(np.fromiter(weights.values(), np.float64), u)]


def _mass(row: Row, sampling: Sampling, top: float) -> float:
    """Unnormalised mass of all ids, in units of the mass of an id with the scaled logit `top`."""
    if isinstance(row, TopLogits) and row.temperature == sampling.softmax_temperature:
        return math.exp(min(row.log_sum - top, 700.0))  # far beyond any vocabulary, within float64
    logits = row.whole() if isinstance(row, TopLogits) else row
    return float(np.exp(logits.astype(np.float64) / sampling.softmax_temperature - top).sum())
