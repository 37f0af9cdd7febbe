"""One token from the head of a row: the ids that `nucleus.winner` gives on the sorted row, or None: not decided here.

What lies outside of the head is known by two bounds: none of its logits exceeds the head's smallest, and all of it
weighs what is left of the sum. So the best score in the head stands unless the noise of an id outside makes up for
the distance, and such ids are found by their noise alone. The filters keep for certain what they keep under every
row that the bounds allow. None falls where they differ; the caller then decides on the whole row.
"""

from math import exp

import numpy as np
from numpy.typing import NDArray

from speculation.sampling import gumbel, nucleus
from speculation.sampling.top_logits import TopLogits

_ORDER = 1e-9  # float64 sums of one vocabulary in different order differ by less, relative
_MANY = 4  # rivals: where more are expected, one in fifty rows has none, and looking takes as long as the whole row


def likeliest(head: TopLogits) -> int | None:
    """The smallest id with the greatest logit. Raises ValueError where that is no finite number."""
    head.check()
    return int(head.ids[0]) if head.sure else None


def draw(head: TopLogits, temperature: float, top_k: int, top_p: float, key: gumbel.RowKey) -> int | None:
    """The token drawn under filters that may be off.

    Raises what `likeliest` raises, and ValueError where top-p is on and the head was made at another temperature.
    """
    head.check()
    if top_p < 1.0 and head.temperature != temperature:
        raise ValueError(f"top-p at temperature {temperature} of a head made at temperature {head.temperature}")
    k = top_k if 0 < top_k < head.size else head.size
    if not head.outside or k <= head.sure:
        return nucleus.winner(head.logits[:k], head.ids[:k], temperature, top_p, key)
    scaled = head.logits.astype(np.float64) / temperature
    certain, possible = len(scaled), head.size
    filtered = k < head.size or top_p < 1.0
    if filtered:
        certain, possible = _kept(head, scaled, k, top_p)
        certain = min(certain, head.sure)  # of ids tied at the smallest logit, ones outside may be kept instead
    closed = possible <= head.sure
    among = possible if closed else len(scaled)
    scores = scaled[:among] + gumbel.gumbel(key, head.ids[:among])
    best = int(scores.argmax())
    if best >= certain:
        return None
    winner, score = int(head.ids[best]), float(scores[best])
    if closed:
        return winner
    least = gumbel.least_high(score - float(scaled[-1]))
    if (2**32 - least) * head.size > _MANY * 2**32:
        return None
    rivals = gumbel.ids_from(key, least, head.size)
    rivals = rivals[~head.holds(rivals)]
    if not len(rivals):
        return winner
    scores = head.whole()[rivals].astype(np.float64) / temperature + gumbel.gumbel(key, rivals)
    if scores.max() <= score:
        return winner
    return None if filtered else int(rivals[scores.argmax()])


def _kept(head: TopLogits, scaled: NDArray[np.float64], k: int, top_p: float) -> tuple[int, int]:
    """How many ids the filters keep at least and at most; beyond the head's length only that it is exceeded counts."""
    if top_p >= 1.0:
        return k, k
    mass = np.cumsum(np.exp(scaled - scaled[0]))
    n = len(mass)
    if k <= n:  # the k greatest are known but for which of equal ones they are
        least = most = top_p * float(mass[k - 1])
    else:
        total = exp(min(head.log_sum - float(scaled[0]), 700.0))  # far beyond any vocabulary, within float64
        least = float(mass[-1]) if k < head.size else max(float(mass[-1]), total * (1.0 - head.doubt))
        rest = min(head.outside, k - n) * exp(float(scaled[-1] - scaled[0]))
        most = min(float(mass[-1]) + rest, total * (1.0 + head.doubt))
        least, most = top_p * least * (1.0 - _ORDER), top_p * most * (1.0 + _ORDER)
    return int(mass.searchsorted(least)) + 1, int(mass.searchsorted(most)) + 1
