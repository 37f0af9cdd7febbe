"""From one row of logits to one token: greedy, or an exact sample under the shared noise.

The rule is `argmax_i(log p_i + G(seed, position, i))` with `p` the distribution after temperature, top-k
and top-p (see `noise`). `choose_reference` says it in the plainest way; `choose` gives the same ids without
sorting or exponentiating a whole vocabulary in float64 (see `whole_row`), or from the head of a row where its engine
keeps the rest on the device (see `head_choice`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speculation.sampling import full_logits, gumbel, nucleus, top_logits_choice
from speculation.sampling.top_logits import TopLogits

GREEDY_BELOW = 1e-3  # temperatures under this are plain argmax

Logits = NDArray[np.float32]
Row = Logits | TopLogits


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a session draws tokens. `top_k` 0 and `top_p` 1 switch the filters off."""

    seed: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < gumbel.SEED_LIMIT:
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

    @property
    def softmax_temperature(self) -> float:
        """At which probabilities are told: the session's own, 1 where it is greedy. For the engine that makes heads."""
        return 1.0 if self.greedy else self.temperature


def choose(row: Row, sampling: Sampling, position: int) -> int:
    """The token at absolute `position` given its row: float32 logits of shape (vocab,), or the head of such.

    Raises ValueError when the row holds a NaN or no finite value, and for a head that was made for other settings
    and would mislead.
    """
    if isinstance(row, TopLogits):
        token = _choose_in(row, sampling, position)
        return choose(row.whole(), sampling, position) if token is None else token
    if sampling.greedy:
        return full_logits.likeliest(row)
    key = gumbel.row_key(sampling.seed, position)
    return full_logits.draw(row, sampling.temperature, sampling.top_k, sampling.top_p, key)


def choose_two(row: Row, sampling: Sampling, position: int) -> tuple[int, int | None]:
    """The token at `position`, and the one that would be chosen were it not there; None: there is no other.

    Where no filter is set the second costs next to nothing in a whole row. Raises what `choose` raises. A whole row is
    written to and is left as it was. A head should hold a few ids even where it is greedy: one does not tell a second.
    """
    if isinstance(row, TopLogits):
        return _choose_two_in(row, sampling, position)
    if sampling.greedy or 0 < sampling.top_k < len(row) or sampling.top_p < 1.0:
        first = choose(row, sampling, position)
        kept, row[first] = float(row[first]), -np.inf
        second = choose(row, sampling, position) if np.isfinite(row.max()) else None
        row[first] = kept
        return first, second
    return full_logits.draw_two(row, sampling.temperature, gumbel.row_key(sampling.seed, position))


def probability(row: Row, token: int, sampling: Sampling) -> float:
    """That of `token` at the session's temperature (at 1 when greedy), filters aside; `token` is one that was chosen.

    Raises ValueError for a head that holds a NaN or no finite value, or was made at another temperature.
    """
    temperature = sampling.softmax_temperature
    if not isinstance(row, TopLogits):
        return float(1.0 / np.exp((row - row[token]) * np.float32(1.0 / temperature)).sum())
    row.check()
    if row.temperature != temperature:
        raise ValueError(f"a probability at temperature {temperature} of a head made at temperature {row.temperature}")
    at = np.flatnonzero(row.ids == token)
    logit = row.logits[at[0]] if len(at) else row.whole()[token]
    return float(np.exp(float(logit) / temperature - row.log_sum))


def choose_reference(logits: Logits, sampling: Sampling, position: int) -> int:
    """The definition, in float64 over the whole vocabulary. `choose` is tested against it."""
    if sampling.greedy:
        return int(np.argmax(logits))
    ids = np.lexsort((np.arange(len(logits)), -logits.astype(np.float64)))
    if sampling.top_k:
        ids = ids[: sampling.top_k]
    key = gumbel.row_key(sampling.seed, position)
    return nucleus.winner(logits[ids], ids, sampling.temperature, sampling.top_p, key)


def _choose_in(head: TopLogits, sampling: Sampling, position: int) -> int | None:
    if sampling.greedy:
        return top_logits_choice.likeliest(head)
    key = gumbel.row_key(sampling.seed, position)
    return top_logits_choice.draw(head, sampling.temperature, sampling.top_k, sampling.top_p, key)


def _choose_two_in(head: TopLogits, sampling: Sampling, position: int) -> tuple[int, int | None]:
    first = _choose_in(head, sampling, position)
    at = np.flatnonzero(head.ids == first)
    if first is None or not len(at) or (len(head.ids) == 1 and head.outside):
        return choose_two(head.whole(), sampling, position)
    rest = head.without(int(at[0]))
    return first, choose(rest, sampling, position) if len(rest.ids) else None
