"""From one row of logits to one token: greedy, or an exact sample under the shared noise.

The rule is `argmax_i(log p_i + G(seed, position, i))` with `p` the distribution after temperature, top-k
and top-p (see `noise`). `choose_reference` says it in the plainest way; `choose` gives the same ids without
sorting or exponentiating a whole vocabulary in float64.

How `choose` is fast and still exact. With v = 1 - u, the noise G = -log(-log1p(-v)) is at most -log v, so a
single float32 pass gives an upper bound of every score. Only the few ids whose bound reaches the best exact
score are evaluated in float64. Top-p needs no sort either: an id is in the nucleus iff the mass ordered
before it is less than p, which is one masked sum; a winner outside the nucleus rules out everything
ordered behind it, and the next best is tried.
"""

import threading
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from speculation import noise

GREEDY_BELOW = 1e-3  # temperatures under this are plain argmax
_BOUND_OFFSET = (127 + 32) * float(np.log(2.0))  # exponent bias and scale of v, left out of the bounds
_FEW = 10  # candidates: below this, plain Python is faster than array calls
_OUT_OF_REACH = np.float32(1e30)
_MASS_SLACK = 1e-4  # a float32 mass this close to p is decided in float64 by the reference

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a session draws tokens. `top_k` 0 and `top_p` 1 switch the filters off."""

    seed: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < noise.SEED_LIMIT:
            raise ValueError(f"seed must be in [0, 2**53), got {self.seed}")
        if not 0.0 <= self.temperature <= 100.0:
            raise ValueError(f"temperature must be in [0, 100], got {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (off) or positive, got {self.top_k}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW


def choose(logits: Logits, sampling: Sampling, position: int) -> int:
    """The token at absolute `position` given its row of `logits` (float32, shape (vocab,)).

    Raises ValueError when the logits hold a NaN or no finite value.
    """
    best = _likeliest(logits)
    if sampling.greedy:
        return best
    key = noise.row_key(sampling.seed, position)
    if 0 < sampling.top_k < len(logits):
        ids = _top_ids(logits, sampling.top_k)
        return _exact_winner(logits[ids], ids, sampling, key)
    return _choose_unsorted(logits, sampling, key, best)


def choose_two(logits: Logits, sampling: Sampling, position: int) -> tuple[int, int | None]:
    """The token at `position`, and the one that would be chosen were it not there; None: there is no other.

    Where no filter is set the second costs next to nothing. Raises what `choose` raises. `logits` is written to and
    is left as it was.
    """
    if sampling.greedy or 0 < sampling.top_k < len(logits) or sampling.top_p < 1.0:
        first = choose(logits, sampling, position)
        kept, logits[first] = float(logits[first]), -np.inf
        second = choose(logits, sampling, position) if np.isfinite(logits.max()) else None
        logits[first] = kept
        return first, second
    _likeliest(logits)  # for what it raises
    key = noise.row_key(sampling.seed, position)
    work = _work.arrays(len(logits))
    bound = _score_bounds(logits, sampling.temperature, key, work)
    first = _leader(logits, bound, sampling.temperature, key, work)
    bound[first] = -np.inf
    if not np.isfinite(bound.max()):
        return first, None
    return first, _leader(logits, bound, sampling.temperature, key, work)


def choose_reference(logits: Logits, sampling: Sampling, position: int) -> int:
    """The definition, in float64 over the whole vocabulary. `choose` is tested against it."""
    if sampling.greedy:
        return int(np.argmax(logits))
    ids = np.lexsort((np.arange(len(logits)), -logits.astype(np.float64)))
    if sampling.top_k:
        ids = ids[: sampling.top_k]
    return _exact_winner(logits[ids], ids, sampling, noise.row_key(sampling.seed, position))


def nucleus_size(ordered: NDArray[np.float64], top_p: float) -> int:
    """Length of the smallest prefix of descending scaled logits whose renormalised mass reaches `top_p`."""
    if top_p >= 1.0:
        return len(ordered)
    mass = np.cumsum(np.exp(ordered - ordered[0]))
    return int(np.searchsorted(mass, top_p * mass[-1], side="left")) + 1


def _likeliest(logits: Logits) -> int:
    best = int(logits.argmax())
    if not np.isfinite(logits[best]):
        raise ValueError("logits without a finite maximum: the engine returned NaN or infinity")
    return best


def _exact_winner(logits: Logits, ids: NDArray[np.intp], sampling: Sampling, key: noise.RowKey) -> int:
    """Winner among `ids`, which are ordered by logit descending, then id ascending."""
    scaled = logits.astype(np.float64) / sampling.temperature
    kept = nucleus_size(scaled, sampling.top_p)
    scores = scaled[:kept] + noise.gumbel(key, ids[:kept])
    return int(ids[:kept][scores.argmax()])


def _top_ids(logits: Logits, k: int) -> NDArray[np.intp]:
    """The k best ids by logit descending, then id ascending.

    The k-th largest of the block maxima is reached by at least k ids, so it bounds the k-th largest logit
    from below and leaves few candidates to sort.
    """
    block = max(1, len(logits) // (4 * k))
    whole = len(logits) // block * block
    maxima = logits[:whole].reshape(-1, block).max(axis=1)
    floor = np.partition(maxima, len(maxima) - k)[len(maxima) - k]
    candidates = np.flatnonzero(logits >= floor)
    order = np.argsort(-logits[candidates], kind="stable")  # candidates ascend by id: stable keeps ties so
    return candidates[order[:k]]


def _choose_unsorted(logits: Logits, sampling: Sampling, key: noise.RowKey, best: int) -> int:
    """Full vocabulary, or top-p alone: the best score; while it lies outside the nucleus, the best ahead of it."""
    work = _work.arrays(len(logits))
    bound = _score_bounds(logits, sampling.temperature, key, work)
    limit: float | None = None  # of the nucleus; with it, the mass of each id is known
    while True:
        winner = _leader(logits, bound, sampling.temperature, key, work)
        if sampling.top_p >= 1.0 or winner == best:
            return winner
        if limit is None:
            np.subtract(logits, logits[best], out=work.mass)
            work.mass *= np.float32(1.0 / sampling.temperature)
            np.exp(work.mass, out=work.mass)
            limit = sampling.top_p * float(work.mass.sum())
        ahead = np.greater(logits, logits[winner], out=work.chosen)
        ahead[:winner] |= logits[:winner] == logits[winner]  # ties go by id
        np.multiply(work.mass, ahead, out=work.weight)
        before = float(work.weight.sum())  # pairwise: a dot product in float32 rounds more than the slack
        if abs(before - limit) < _MASS_SLACK * limit:
            ids = np.lexsort((_ids(len(logits)), -logits.astype(np.float64)))
            return _exact_winner(logits[ids], ids, sampling, key)
        if before < limit:
            return winner
        # Out of reach for all that is not ahead; by arithmetic, since a masked write takes ten times as long.
        np.copyto(work.weight, ahead)
        work.weight -= 1.0
        work.weight *= _OUT_OF_REACH
        bound += work.weight


def _leader(logits: Logits, bound: Logits, temperature: float, key: noise.RowKey, work: "_Arrays") -> int:
    """The id of the best exact score, among those whose `bound` has not been put out of reach."""

    def exact(token: int) -> float:
        return float(logits[token]) / temperature + noise.gumbel_one(key, token)

    first = int(bound.argmax())
    slack = 1e-3 + 1e-6 * abs(float(logits[first])) / temperature  # ten times the rounding of a bound
    reach = exact(first) - _BOUND_OFFSET - slack
    close = np.flatnonzero(np.greater_equal(bound, np.float32(reach), out=work.chosen))
    if len(close) <= _FEW:
        return int(max(close.tolist(), key=exact))
    scores = logits[close].astype(np.float64) / temperature + noise.gumbel(key, close)
    return int(close[scores.argmax()])


def _score_bounds(logits: Logits, temperature: float, key: noise.RowKey, work: "_Arrays") -> Logits:
    """logit / temperature - log v, float32, up to a constant: what the score of each id cannot exceed.

    The bits of a float32, read as an integer, are its base-2 logarithm interpolated linearly between powers
    of two: below the true one by at most 0.09, and four times cheaper than a logarithm.
    """
    v = noise.high_words(key, _spread(len(logits)), work.words, work.more_words)
    np.invert(v, out=v)
    np.copyto(work.weight, v, casting="unsafe")
    bound = work.bound
    np.copyto(bound, work.weight.view(np.int32), casting="unsafe")
    bound *= np.float32(-np.log(2.0) * 2.0**-23)
    np.multiply(logits, np.float32(1.0 / temperature), out=work.weight)
    bound += work.weight
    return bound


class _Arrays:
    """Room to work in, of the vocabulary's size."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.bound, self.mass, self.weight = (np.empty(size, np.float32) for _ in range(3))
        self.words, self.more_words = (np.empty(size, np.uint32) for _ in range(2))
        self.chosen = np.empty(size, np.bool_)


class _Work(threading.local):
    """One such room a thread, kept: new arrays cost more in page faults than the arithmetic in them."""

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
    spread = noise.spread_ids(_ids(size))
    spread.flags.writeable = False
    return spread
