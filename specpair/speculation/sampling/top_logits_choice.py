"""Choose a token from the top logits of a row: the same id as `nucleus.winner` on the sorted row, or None: undecided.

Two bounds hold for the ids outside the top logits: none of their logits exceeds the smallest top logit, and their mass
is what remains of the sum. So the best score among the top logits wins unless the noise of an id outside makes up for
the distance. Such ids are found by their noise alone. An id is certain to pass the filters if it passes them for every
row that the bounds allow. Where this leaves the choice open, the result is None, and the caller decides on the whole
row.
"""

from math import exp

import numpy as np
from numpy.typing import NDArray

from specpair.speculation.sampling import gumbel, nucleus
from specpair.speculation.sampling.top_logits import TopLogits

_ORDER = 1e-9  # relative bound on the difference between float64 sums of one vocabulary in different order
# Most rivals (ids outside whose noise suffices to win) to be expected for a search. With more of them, only one row in
# fifty has none, and the search costs as much as the row.
_MANY = 4


def likeliest(top: TopLogits) -> int | None:
    """The smallest id with the greatest logit; None: undecided. Raises ValueError where that logit is not finite."""
    top.check()
    return int(top.ids[0]) if top.sure else None


def draw(top: TopLogits, temperature: float, top_k: int, top_p: float, key: gumbel.RowKey) -> int | None:
    """The token drawn under the filters (`top_k` 0 and `top_p` 1: off); None: undecided.

    Raises what `likeliest` raises, and ValueError where top-p is on and the top logits are of another temperature.
    """
    top.check()
    if top_p < 1.0 and top.temperature != temperature:
        raise ValueError(
            f"top-p at temperature {temperature} needs top logits of that temperature, not {top.temperature}"
        )
    k = top_k if 0 < top_k < top.size else top.size
    if not top.outside or k <= top.sure:
        return nucleus.winner(top.logits[:k], top.ids[:k], temperature, top_p, key)
    scaled = top.logits.astype(np.float64) / temperature
    certain, possible = len(scaled), top.size
    filtered = k < top.size or top_p < 1.0
    if filtered:
        certain, possible = _kept(top, scaled, k, top_p)
        certain = min(certain, top.sure)  # of ids tied at the smallest logit, those outside may pass instead
    closed = possible <= top.sure
    among = possible if closed else len(scaled)
    scores = scaled[:among] + gumbel.gumbel(key, top.ids[:among])
    best = int(scores.argmax())
    if best >= certain:
        return None
    winner, score = int(top.ids[best]), float(scores[best])
    if closed:
        return winner
    least = gumbel.least_high(score - float(scaled[-1]))
    if (2**32 - least) * top.size > _MANY * 2**32:
        return None
    rivals = gumbel.ids_from(key, least, top.size)
    rivals = rivals[~top.holds(rivals)]
    if not len(rivals):
        return winner
    scores = top.whole()[rivals].astype(np.float64) / temperature + gumbel.gumbel(key, rivals)
    if scores.max() <= score:
        return winner
    return None if filtered else int(rivals[scores.argmax()])


def _kept(top: TopLogits, scaled: NDArray[np.float64], k: int, top_p: float) -> tuple[int, int]:
    """Least and greatest number of ids that may pass the filters. Beyond len(scaled) the number is not exact."""
    if top_p >= 1.0:
        return k, k
    mass = np.cumsum(np.exp(scaled - scaled[0]))
    n = len(mass)
    if k <= n:  # the k greatest logits are known, though not which of tied ids they belong to
        least = most = top_p * float(mass[k - 1])
    else:
        total = exp(min(top.log_sum - float(scaled[0]), 700.0))  # far beyond any vocabulary, within float64
        least = float(mass[-1]) if k < top.size else max(float(mass[-1]), total * (1.0 - top.doubt))
        rest = min(top.outside, k - n) * exp(float(scaled[-1] - scaled[0]))
        most = min(float(mass[-1]) + rest, total * (1.0 + top.doubt))
        least, most = top_p * least * (1.0 - _ORDER), top_p * most * (1.0 + _ORDER)
    return int(mass.searchsorted(least)) + 1, int(mass.searchsorted(most)) + 1
