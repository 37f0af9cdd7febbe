"""From one row of logits to one token: greedy, or an exact sample under the shared noise.

The rule is `argmax_i(log p_i + G(seed, position, i))` with `p` the distribution after temperature, top-k
and top-p (see `noise`). `choose_reference` says it in the plainest way; `choose` gives the same ids without
sorting or exponentiating a whole vocabulary in float64.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speculation import noise, nucleus, whole_row

GREEDY_BELOW = 1e-3  # temperatures under this are plain argmax

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
    if sampling.greedy:
        return whole_row.likeliest(logits)
    key = noise.row_key(sampling.seed, position)
    return whole_row.draw(logits, sampling.temperature, sampling.top_k, sampling.top_p, key)


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
    return whole_row.draw_two(logits, sampling.temperature, noise.row_key(sampling.seed, position))


def choose_reference(logits: Logits, sampling: Sampling, position: int) -> int:
    """The definition, in float64 over the whole vocabulary. `choose` is tested against it."""
    if sampling.greedy:
        return int(np.argmax(logits))
    ids = np.lexsort((np.arange(len(logits)), -logits.astype(np.float64)))
    if sampling.top_k:
        ids = ids[: sampling.top_k]
    key = noise.row_key(sampling.seed, position)
    return nucleus.winner(logits[ids], ids, sampling.temperature, sampling.top_p, key)
