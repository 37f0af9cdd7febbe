"""The distribution that a row of logits stands for under a session's settings, as numbers: for rules that weigh it.

Tokens are drawn without it (`sampling.choose`). It takes a millisecond or so of a whole vocabulary in float64, and is
worked out only where a strategy, or somebody who wants to know, asks for a probability.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from speculation.sampling import full_logits, nucleus
from speculation.sampling.sampling import Logits, Row, Sampling
from speculation.sampling.top_logits import TopLogits

_FIRST_LOOK, _WIDER = 1024, 16  # ids among which the nucleus is looked for; so many times more each time it is larger
_DOUBT = 1e-9  # sums of one vocabulary in different order differ by less, relative


def probabilities(row: Row, sampling: Sampling) -> NDArray[np.float64]:
    """Shape (vocab,): after temperature, top-k and top-p, as `sampling.choose_reference` has them, summing to 1.

    All of it is on the argmax where the session is greedy. A head is fetched whole. Raises ValueError where the row
    holds a NaN or no finite value.
    """
    logits = row.whole() if isinstance(row, TopLogits) else row
    best = full_logits.likeliest(logits)
    p = np.zeros(len(logits))
    if sampling.greedy:
        p[best] = 1.0
        return p
    scaled = logits.astype(np.float64) / sampling.temperature
    kept = _kept(logits, scaled, sampling)
    mass = np.exp(scaled[kept] - scaled[best])
    p[kept] = mass / mass.sum()
    return p


def told(sampling: Sampling) -> Sampling:
    """Under which probabilities are told: the session's settings; temperature 1 and no filter where it is greedy."""
    return replace(sampling, temperature=1.0, top_k=0, top_p=1.0) if sampling.greedy else sampling


def draw(weights: NDArray[np.float64], u: float) -> int:
    """The index that `u`, uniform in [0, 1), draws with chances in proportion to `weights`, some of which are > 0."""
    mass = np.cumsum(weights)
    at = int(np.searchsorted(mass, u * mass[-1], side="right"))
    return at if at < len(weights) else int(np.flatnonzero(weights)[-1])  # u x mass was rounded up to all of it


def _kept(logits: Logits, scaled: NDArray[np.float64], sampling: Sampling) -> NDArray[np.intp] | slice:
    """The ids that pass the filters."""
    size, top_p = len(logits), sampling.top_p
    if 0 < sampling.top_k < size:
        ids = full_logits.top_ids(logits, sampling.top_k)
        return ids[: nucleus.nucleus_size(scaled[ids], top_p)]
    if top_p >= 1.0:
        return slice(None)
    total = float(np.exp(scaled - scaled.max()).sum())
    look = _FIRST_LOOK
    while look < size:
        ids = full_logits.top_ids(logits, look)
        mass = np.cumsum(np.exp(scaled[ids] - scaled[ids[0]]))
        fewest, most = (int(mass.searchsorted(top_p * total * each)) for each in (1.0 - _DOUBT, 1.0 + _DOUBT))
        if fewest == most < look:
            return ids[: most + 1]
        look = look * _WIDER if most == look else size  # or too close to call without the very order of the definition
    ids = np.lexsort((np.arange(size), -scaled))
    return ids[: nucleus.nucleus_size(scaled[ids], top_p)]
