"""The definition of top-p and of the draw, in float64, on sorted logits.

Sorted means by logit descending, then id ascending, with top-k already applied. All faster forms return the same ids.
"""

import numpy as np
from numpy.typing import NDArray

from specpair.speculation.sampling import gumbel


def nucleus_size(ordered: NDArray[np.float64], top_p: float, total: float | None = None) -> int:
    """Length of the smallest prefix of descending scaled logits, shape (n,), whose renormalised mass reaches `top_p`.

    `total`: the mass of all ids, in units of the first one's mass, where `ordered` holds only the first ids.

    Returns n + 1 where `ordered` does not reach `top_p` of it.
    """
    if top_p >= 1.0:
        return len(ordered)
    mass = np.cumsum(np.exp(ordered - ordered[0]))
    return int(np.searchsorted(mass, top_p * (mass[-1] if total is None else total), side="left")) + 1


def winner(
    logits: NDArray[np.float32], ids: NDArray[np.integer], temperature: float, top_p: float, key: gumbel.RowKey
) -> int:
    """The id drawn among `ids`, which are sorted together with their `logits`; both have shape (n,)."""
    scaled = logits.astype(np.float64) / temperature
    kept = nucleus_size(scaled, top_p)
    scores = scaled[:kept] + gumbel.gumbel(key, ids[:kept])
    return int(ids[:kept][scores.argmax()])
