"""Chooses one token from one row of logits: greedy, or an exact sample under the shared noise.

The rule is `argmax_i(log p_i + G(seed, position, i))` with `p` the distribution after temperature, top-k and top-p, and
`G` the noise of `gumbel`. Logit processors have changed the row before (`processors`): nothing here applies them.
`choose_reference` is the plainest form. `choose` returns the same ids without sorting or exponentiating a whole
vocabulary in float64 (`full_logits`), or from the top logits of a row where the engine keeps the rest on the device
(`TopLogits`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from specpair.options.option import complaint, option, options_of
from specpair.speculation.sampling import full_logits, gumbel
from specpair.speculation.sampling.processors import Processors
from specpair.speculation.sampling.row_changes import LogitProcessor, MakeGrammar
from specpair.speculation.sampling.top_logits import Logits as Logits
from specpair.speculation.sampling.top_logits import Row as Row
from specpair.speculation.sampling.top_logits import TopLogits, TopLogitsSpec

GREEDY_BELOW = 1e-3  # temperatures under this are plain argmax
MOST_TOP_K = 2**53  # JSON readers that have floats only take larger numbers for others


@dataclass(frozen=True)
class SamplingOptions(Processors):
    """The sampling options of every interface, including those of the logit processors."""

    seed: int | None = option(
        None,
        "determines all random choices: the same seed gives the same text",
        usually="random, and reported",
        ge=0,
        lt=gumbel.SEED_LIMIT,
        group="sampling",
        placeholder="S",
    )
    temperature: float = option(
        0.0,
        "sampling temperature; 0: always the most likely token",
        ge=0.0,
        le=100.0,
        group="sampling",
        placeholder="T",
    )
    top_k: int = option(
        0,
        "draw from this many of the most likely tokens; 0: all",
        ge=0,
        le=MOST_TOP_K,
        group="sampling",
        placeholder="K",
    )
    top_p: float = option(
        1.0,
        "draw from the fewest most likely tokens whose probabilities add up to this; 1: all",
        gt=0.0,
        le=1.0,
        group="sampling",
        placeholder="P",
    )


@dataclass(frozen=True)
class Sampling(SamplingOptions):
    """Sampling settings of a text. Raises ValueError for values that are out of range."""

    seed: int = option(0, "as given, or as drawn where none was given", ge=0, lt=gumbel.SEED_LIMIT)

    def __post_init__(self) -> None:
        if (wrong := complaint(self)) is not None:
            raise ValueError(wrong)

    @classmethod
    def of(cls, given: SamplingOptions) -> "Sampling":
        """The settings of a text with these options; the seed is 0 if none was given."""
        return cls(**{name: getattr(given, name) for name in options_of(cls)} | {"seed": given.seed or 0})

    @property
    def greedy(self) -> bool:
        """Whether the chosen token is the plain argmax."""
        return self.temperature < GREEDY_BELOW

    def processors(
        self, ends: Collection[int], size: int | None = None, grammars: MakeGrammar | None = None
    ) -> list[LogitProcessor]:
        """New logit processors, those that change a row. Raises InvalidRequest for a grammar that cannot be used.

        `ends`: ids of the model's end tokens.
        `size`: ids of a row, where the text may hold others; None: it holds none.
        `grammars`: of the vocabulary; None: there are none.
        """
        return self.made(ends, size, 0.0 if self.greedy else self.temperature, grammars)

    @property
    def unprocessed(self) -> "Sampling":
        """These settings without those of logit processors."""
        return Sampling(self.seed, self.temperature, self.top_k, self.top_p)

    @property
    def softmax_temperature(self) -> float:
        """The temperature of reported probabilities and of TopLogits: the session's own, or 1 where it is greedy."""
        return 1.0 if self.greedy else self.temperature


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


def choose_several(row: Row, sampling: Sampling, position: int, count: int) -> list[int]:
    """The token at absolute `position`, and those chosen if all before were masked: `count`, or all that there are.

    In a whole row without filters those behind the first cost next to nothing. A whole row is written to and restored.
    A TopLogits should hold several ids even where the session is greedy, because one id does not tell the second.
    Raises what `choose` raises.
    """
    if isinstance(row, TopLogits):
        return _choose_several_top(row, sampling, position, count)
    if not (sampling.greedy or 0 < sampling.top_k < len(row) or sampling.top_p < 1.0):
        return full_logits.draw_several(row, sampling.temperature, gumbel.row_key(sampling.seed, position), count)
    chosen, kept = [choose(row, sampling, position)], list[float]()
    while len(chosen) < count:
        kept.append(float(row[chosen[-1]]))
        row[chosen[-1]] = -np.inf
        if not np.isfinite(row.max()):
            break
        chosen.append(choose(row, sampling, position))
    for token, logit in zip(chosen, kept, strict=False):
        row[token] = logit
    return chosen


def probabilities(row: Row, tokens: Sequence[int], sampling: Sampling) -> list[float]:
    """The probability, 0 to 1, of each of `tokens` at the session's temperature (1 where greedy), without filters.

    Raises ValueError for a TopLogits that holds a NaN or no finite value, or was made at another temperature.
    """
    temperature = sampling.softmax_temperature
    if not isinstance(row, TopLogits):
        first = row[tokens[0]]
        scale = np.float32(1.0 / temperature)
        total = np.exp((row - first) * scale).sum()
        return [float(np.exp((row[token] - first) * scale) / total) for token in tokens]
    row.check()
    if row.temperature != temperature:
        raise ValueError(
            f"the probability at temperature {temperature} needs top logits of that temperature, not {row.temperature}"
        )
    found = []
    for token in tokens:
        at = np.flatnonzero(row.ids == token)
        logit = row.logits[at[0]] if len(at) else row.whole()[token]
        found.append(float(np.exp(float(logit) / temperature - row.log_sum)))
    return found


def choose_reference(logits: Logits, sampling: Sampling, position: int) -> int:
    """The definition of `choose`, in float64 over the whole vocabulary, for tests."""
    if sampling.greedy:
        return int(np.argmax(logits))
    ids = np.lexsort((np.arange(len(logits)), -logits.astype(np.float64)))
    if sampling.top_k:
        ids = ids[: sampling.top_k]
    key = gumbel.row_key(sampling.seed, position)
    return full_logits.winner(logits[ids], ids, sampling.temperature, sampling.top_p, key)


def _choose_top(top: TopLogits, sampling: Sampling, position: int) -> int | None:
    if sampling.greedy:
        return top.likeliest()
    key = gumbel.row_key(sampling.seed, position)
    return top.draw(sampling.temperature, sampling.top_k, sampling.top_p, key)


def _choose_several_top(top: TopLogits, sampling: Sampling, position: int, count: int) -> list[int]:
    chosen: list[int] = []
    while True:
        token = _choose_top(top, sampling, position)
        at = np.flatnonzero(top.ids == token)
        if token is None or not len(at) or (len(top.ids) == 1 and top.outside):
            return [*chosen, *choose_several(top.whole(), sampling, position, count - len(chosen))]
        chosen.append(token)
        if len(chosen) == count:
            return chosen
        top = top.without(int(at[0]))
        if not len(top.ids):
            return chosen


TOP_LOGITS_COUNT = 1024  # top logits of a row: these suffice to draw nearly every token


def top_logits_spec(sampling: Sampling, below: int, choices: int = 1, *, whole: bool = False) -> TopLogitsSpec:
    """The top logits to ask for, to choose `choices` tokens of one row by `sampling` among the ids below `below`.

    `whole`: ask for whole rows, as logit processors and log probabilities need them.
    """
    if whole:
        return TopLogitsSpec(None, sampling.softmax_temperature, below)
    size = choices if sampling.greedy else max(TOP_LOGITS_COUNT, sampling.top_k)
    return TopLogitsSpec(min(size, below), sampling.softmax_temperature, below)
