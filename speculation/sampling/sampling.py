"""Choose one token from one row of logits: greedy, or an exact sample under the shared noise.

The rule is `argmax_i(log p_i + G(seed, position, i))` with `p` the distribution after temperature, top-k and top-p, and
`G` the noise of `gumbel`. Logit processors have changed the row before (`processors`): nothing here applies them.
`choose_reference` is the plainest form. `choose` returns the same ids without sorting or exponentiating a whole
vocabulary in float64 (`full_logits`), or from the top logits of a row where the engine keeps the rest on the device
(`top_logits_choice`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speculation.sampling import full_logits, gumbel, nucleus, top_logits_choice
from speculation.sampling.top_logits import TopLogits

GREEDY_BELOW = 1e-3  # temperatures under this are plain argmax
PENALTY = 2.0  # the greatest frequency and presence penalty; the least is its negative
REPETITION = (0.01, 100.0)  # range of the repetition penalty: beyond it, float32 logits could overflow
MOST_TOP_K = 2**53  # JSON readers that have floats only take larger numbers for others
MOST_MIN_TOKENS = 2**53  # so many that no end token ever comes
BIAS = 100.0  # the greatest bias of an id; the least is its negative

Logits = NDArray[np.float32]
Row = Logits | TopLogits


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings of a session. `top_k` 0 and `top_p` 1 switch the filters off.

    The others are settings of logit processors, which are described in `processors` and off by default. `logit_bias`:
    pairs of an id and its bias, sorted by id, each id once. `min_tokens`: no end token comes before so many tokens.
    """

    seed: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < gumbel.SEED_LIMIT:
            raise ValueError(f"seed must be in [0, 2**53), got {self.seed}")
        if not 0.0 <= self.temperature <= 100.0:
            raise ValueError(f"temperature must be in [0, 100], got {self.temperature}")
        if not 0 <= self.top_k <= MOST_TOP_K:
            raise ValueError(f"top_k must be 0 (off) or positive, up to 2**53, got {self.top_k}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if not 0.0 <= self.min_p <= 1.0:
            raise ValueError(f"min_p must be in [0, 1], got {self.min_p}")
        for name in ("presence_penalty", "frequency_penalty"):
            if not -PENALTY <= getattr(self, name) <= PENALTY:
                raise ValueError(f"{name} must be in [{-PENALTY:g}, {PENALTY:g}], got {getattr(self, name)}")
        least, most = REPETITION
        if not least <= self.repetition_penalty <= most:
            raise ValueError(f"repetition_penalty must be in [{least:g}, {most:g}], got {self.repetition_penalty}")
        if not 0 <= self.min_tokens <= MOST_MIN_TOKENS:
            raise ValueError(f"min_tokens must be in [0, 2**53], got {self.min_tokens}")
        for token, bias in self.logit_bias:
            if token < 0:
                raise ValueError(f"logit_bias names {token}, which is no token id: ids are 0 or greater")
            if not -BIAS <= bias <= BIAS:
                raise ValueError(f"logit_bias of token {token} must be in [{-BIAS:g}, {BIAS:g}], got {bias}")
        if any(left[0] >= right[0] for left, right in pairwise(self.logit_bias)):
            raise ValueError("logit_bias must be sorted by id, each id once: see `bias_pairs`")

    @classmethod
    def named_as_in(cls, given: object, seed: int, bias: Mapping[int, float]) -> "Sampling":
        """Settings with `seed` and `bias`; the others are the attributes of these names in `given`."""
        return cls(seed, logit_bias=bias_pairs(bias), **{name: getattr(given, name) for name in _names()})

    def settings(self) -> dict[str, Any]:
        """The settings by name, but the seed, and `logit_bias`, which each interface writes in its own way."""
        return {name: getattr(self, name) for name in _names()}

    @property
    def greedy(self) -> bool:
        """Whether the chosen token is the plain argmax."""
        return self.temperature < GREEDY_BELOW

    @property
    def processed(self) -> bool:
        """Whether a logit processor changes rows."""
        penalised = self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        return bool(self.min_tokens or penalised or self.logit_bias or (self.min_p and not self.greedy))

    @property
    def unprocessed(self) -> "Sampling":
        """These settings without those of logit processors."""
        return Sampling(self.seed, self.temperature, self.top_k, self.top_p)

    @property
    def softmax_temperature(self) -> float:
        """The temperature of reported probabilities and of TopLogits: the session's own, or 1 where it is greedy."""
        return 1.0 if self.greedy else self.temperature


def bias_pairs(biases: Mapping[int, float]) -> tuple[tuple[int, float], ...]:
    """`Sampling.logit_bias` for the bias of each id."""
    return tuple(sorted((token, float(bias)) for token, bias in biases.items()))


def _names() -> Iterator[str]:
    """The settings that every interface has under the same name."""
    return (each.name for each in fields(Sampling) if each.name not in ("seed", "logit_bias"))


def choose(row: Row, sampling: Sampling, position: int) -> int:
    """The token at absolute `position` given its row: float32 logits of shape (vocab,), or a TopLogits.

    Raises ValueError where the row holds a NaN or no finite value, and for a TopLogits of another temperature where
    that matters.
    """
    if isinstance(row, TopLogits):
        token = _choose_top(row, sampling, position)
        return choose(row.whole(), sampling, position) if token is None else token
    if sampling.greedy:
        return full_logits.likeliest(row)
    key = gumbel.row_key(sampling.seed, position)
    return full_logits.draw(row, sampling.temperature, sampling.top_k, sampling.top_p, key)


def choose_two(row: Row, sampling: Sampling, position: int) -> tuple[int, int | None]:
    """The token at absolute `position`, and the one chosen if the first were masked; None: there is no other.

    In a whole row without filters the second costs next to nothing. A whole row is written to and restored. A TopLogits
    should hold several ids even where the session is greedy, because one id does not tell the second. Raises what
    `choose` raises.
    """
    if isinstance(row, TopLogits):
        return _choose_two_top(row, sampling, position)
    if sampling.greedy or 0 < sampling.top_k < len(row) or sampling.top_p < 1.0:
        first = choose(row, sampling, position)
        kept, row[first] = float(row[first]), -np.inf
        second = choose(row, sampling, position) if np.isfinite(row.max()) else None
        row[first] = kept
        return first, second
    return full_logits.draw_two(row, sampling.temperature, gumbel.row_key(sampling.seed, position))


def probability(row: Row, token: int, sampling: Sampling) -> float:
    """The probability, 0 to 1, of the chosen `token` at the session's temperature (1 where greedy), without filters.

    Raises ValueError for a TopLogits that holds a NaN or no finite value, or was made at another temperature.
    """
    temperature = sampling.softmax_temperature
    if not isinstance(row, TopLogits):
        return float(1.0 / np.exp((row - row[token]) * np.float32(1.0 / temperature)).sum())
    row.check()
    if row.temperature != temperature:
        raise ValueError(
            f"the probability at temperature {temperature} needs top logits of that temperature, not {row.temperature}"
        )
    at = np.flatnonzero(row.ids == token)
    logit = row.logits[at[0]] if len(at) else row.whole()[token]
    return float(np.exp(float(logit) / temperature - row.log_sum))


def choose_reference(logits: Logits, sampling: Sampling, position: int) -> int:
    """The definition of `choose`, in float64 over the whole vocabulary, for tests."""
    if sampling.greedy:
        return int(np.argmax(logits))
    ids = np.lexsort((np.arange(len(logits)), -logits.astype(np.float64)))
    if sampling.top_k:
        ids = ids[: sampling.top_k]
    key = gumbel.row_key(sampling.seed, position)
    return nucleus.winner(logits[ids], ids, sampling.temperature, sampling.top_p, key)


def _choose_top(top: TopLogits, sampling: Sampling, position: int) -> int | None:
    if sampling.greedy:
        return top_logits_choice.likeliest(top)
    key = gumbel.row_key(sampling.seed, position)
    return top_logits_choice.draw(top, sampling.temperature, sampling.top_k, sampling.top_p, key)


def _choose_two_top(top: TopLogits, sampling: Sampling, position: int) -> tuple[int, int | None]:
    first = _choose_top(top, sampling, position)
    at = np.flatnonzero(top.ids == first)
    if first is None or not len(at) or (len(top.ids) == 1 and top.outside):
        return choose_two(top.whole(), sampling, position)
    rest = top.without(int(at[0]))
    return first, choose(rest, sampling, position) if len(rest.ids) else None
