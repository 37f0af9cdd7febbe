"""Draws a token from a whole row of logits: by definition on sorted logits, and the same id without sorting.

`nucleus_size` and `winner` define top-p and the draw, in float64. Sorted means by logit descending, then id ascending,
with top-k already applied. All faster forms return the same ids.

Why it is fast and exact: with v = 1 - u, the noise G = -log(-log1p(-v)) is at most -log v, so one float32 pass gives an
upper bound of every score. Only the few ids whose bound reaches the best exact score are evaluated in float64. Top-p
needs no sort either: an id is in the nucleus iff the mass ordered before it is less than p, which is one masked sum. A
winner outside the nucleus rules out every id ordered behind it, and the next best id is tried.
"""

import math
import threading
from functools import lru_cache

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


_BOUND_OFFSET = (127 + 32) * float(np.log(2.0))  # exponent bias and scale of v, left out of the bounds
_FEW = 10  # candidates up to which plain Python is faster than array calls
_OUT_OF_REACH = np.float32(1e30)
_MASS_SLACK = 1e-4  # a float32 mass this close to the limit is decided in float64 over the sorted row

Logits = NDArray[np.float32]


def likeliest(logits: Logits) -> int:
    """The smallest id with the greatest logit. Raises ValueError where that logit is not finite."""
    best = int(logits.argmax())
    if not math.isfinite(logits[best]):
        raise ValueError("logits without a finite maximum: the engine returned NaN or infinity")
    return best


def draw(logits: Logits, temperature: float, top_k: int, top_p: float, key: gumbel.RowKey) -> int:
    """The token drawn under the filters (`top_k` 0 and `top_p` 1: off). Raises what `likeliest` raises."""
    best = likeliest(logits)
    if 0 < top_k < len(logits):
        ids = top_ids(logits, top_k)
        return winner(logits[ids], ids, temperature, top_p, key)
    return _draw_unsorted(logits, temperature, top_p, key, best)


def draw_several(logits: Logits, temperature: float, key: gumbel.RowKey, count: int) -> list[int]:
    """The token drawn without filters, and those drawn if all before were masked: `count`, or all that there are.

    Those behind the first cost next to nothing. Raises what `likeliest` raises.
    """
    likeliest(logits)  # raises for an invalid row
    work = _work.arrays(len(logits))
    bound = _score_bounds(logits, temperature, key, work)
    drawn = [_leader(logits, bound, temperature, key, work)]
    while len(drawn) < count:
        bound[drawn[-1]] = -np.inf
        if not np.isfinite(bound.max()):
            break
        drawn.append(_leader(logits, bound, temperature, key, work))
    return drawn


def top_ids(logits: Logits, k: int) -> NDArray[np.intp]:
    """The k best ids by logit descending, then id ascending, shape (k,). `logits` holds no NaN; `k` <= len(logits).

    The k-th largest of the block maxima is reached by at least k ids, so it bounds the k-th largest logit
    from below and leaves few candidates to sort.
    """
    block = max(1, len(logits) // (4 * k))
    whole = len(logits) // block * block
    maxima = logits[:whole].reshape(-1, block).max(axis=1)
    floor = np.partition(maxima, len(maxima) - k)[len(maxima) - k]
    candidates = np.flatnonzero(logits >= floor)
    # Candidates ascend by id, and a stable sort keeps that order in ties.
    order = np.argsort(-logits[candidates], kind="stable")
    return candidates[order[:k]]


def _draw_unsorted(logits: Logits, temperature: float, top_p: float, key: gumbel.RowKey, best: int) -> int:
    """The token drawn without top-k: the id of the best score that lies in the nucleus. `best`: the argmax."""
    work = _work.arrays(len(logits))
    bound = _score_bounds(logits, temperature, key, work)
    limit: float | None = None  # mass of the nucleus; set together with the mass of each id
    while True:
        leader = _leader(logits, bound, temperature, key, work)
        if top_p >= 1.0 or leader == best:
            return leader
        if limit is None:
            np.subtract(logits, logits[best], out=work.mass)
            work.mass *= np.float32(1.0 / temperature)
            np.exp(work.mass, out=work.mass)
            limit = top_p * float(work.mass.sum())
        ahead = np.greater(logits, logits[leader], out=work.chosen)
        ahead[:leader] |= logits[:leader] == logits[leader]  # ties go by id
        np.multiply(work.mass, ahead, out=work.weight)
        before = float(work.weight.sum())  # pairwise: a dot product in float32 rounds more than the slack
        if abs(before - limit) < _MASS_SLACK * limit:
            ids = np.lexsort((_ids(len(logits)), -logits.astype(np.float64)))
            return winner(logits[ids], ids, temperature, top_p, key)
        if before < limit:
            return leader
        # Put all ids that are not ahead out of reach. Arithmetic does it, as a masked write takes ten times as long.
        np.copyto(work.weight, ahead)
        work.weight -= 1.0
        work.weight *= _OUT_OF_REACH
        bound += work.weight


def _leader(logits: Logits, bound: Logits, temperature: float, key: gumbel.RowKey, work: "_Arrays") -> int:
    """The id of the best exact score among the ids whose `bound` is within reach."""

    def exact(token: int) -> float:
        return float(logits[token]) / temperature + gumbel.gumbel_one(key, token)

    first = int(bound.argmax())
    slack = 1e-3 + 1e-6 * abs(float(logits[first])) / temperature  # ten times the rounding of a bound
    reach = exact(first) - _BOUND_OFFSET - slack
    close = np.flatnonzero(np.greater_equal(bound, np.float32(reach), out=work.chosen))
    if len(close) <= _FEW:
        return int(max(close.tolist(), key=exact))
    scores = logits[close].astype(np.float64) / temperature + gumbel.gumbel(key, close)
    return int(close[scores.argmax()])


def _score_bounds(logits: Logits, temperature: float, key: gumbel.RowKey, work: "_Arrays") -> Logits:
    """Upper bounds of the scores, up to a constant: logit / temperature - log v, float32 of shape (vocab,).

    The bits of a float32, read as an integer, are its base-2 logarithm interpolated linearly between powers
    of two: below the true one by at most 0.09, and four times cheaper than a logarithm.
    """
    v = gumbel.high_words(key, _spread(len(logits)), work.words, work.more_words)
    np.invert(v, out=v)
    np.copyto(work.weight, v, casting="unsafe")
    bound = work.bound
    np.copyto(bound, work.weight.view(np.int32), casting="unsafe")
    bound *= np.float32(-np.log(2.0) * 2.0**-23)
    np.multiply(logits, np.float32(1.0 / temperature), out=work.weight)
    bound += work.weight
    return bound


class _Arrays:
    """Work arrays, each with one element for each id of the vocabulary."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.bound, self.mass, self.weight = (np.empty(size, np.float32) for _ in range(3))
        self.words, self.more_words = (np.empty(size, np.uint32) for _ in range(2))
        self.chosen = np.empty(size, np.bool_)


class _Work(threading.local):
    """One set of work arrays for each thread, kept because page faults of new arrays cost more than the arithmetic."""

    _kept = _Arrays(0)

    def arrays(self, size: int) -> _Arrays:
        if self._kept.size != size:
            self._kept = _Arrays(size)
        return self._kept


_work = _Work()


@lru_cache(maxsize=4)
def _ids(size: int) -> NDArray[np.intp]:
    ids = np.arange(size)
    ids.flags.writeable = False
    return ids


@lru_cache(maxsize=4)
def _spread(size: int) -> NDArray[np.uint32]:
    spread = gumbel.spread_ids(_ids(size))
    spread.flags.writeable = False
    return spread
