"""Who wins among logits in order: the definition of top-p and of the draw, in float64.

"In order" means by logit descending, then id ascending, with top-k already applied. Everything that is faster
gives the ids that this gives.
"""

import numpy as np
from numpy.typing import NDArray

from speculation.sampling import gumbel


def nucleus_size(ordered: NDArray[np.float64], top_p: float, total: float | None = None) -> int:
    """Length of the smallest prefix of descending scaled logits whose renormalised mass reaches `top_p`.

    `total`: the mass of all ids where these are only the first, in units of the first one's; more than all of them are
    said where they do not reach.
    """
    if top_p >= 1.0:
        return len(ordered)
    mass = np.cumsum(np.exp(ordered - ordered[0]))
    return int(np.searchsorted(mass, top_p * (mass[-1] if total is None else total), side="left")) + 1


def winner(
    logits: NDArray[np.float32], ids: NDArray[np.integer], temperature: float, top_p: float, key: gumbel.RowKey
) -> int:
    """The id drawn among `ids`, which with their `logits` are in order."""
    scaled = logits.astype(np.float64) / temperature
    kept = nucleus_size(scaled, top_p)
    scores = scaled[:kept] + gumbel.gumbel(key, ids[:kept])
    return int(ids[:kept][scores.argmax()])
