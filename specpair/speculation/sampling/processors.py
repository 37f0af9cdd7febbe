"""The logit processors that a text can ask for: each is a dataclass with its options, which makes the processor.

To add one: write its class, and name it among the bases of `Processors`. Its options then are options of every request,
command and program, at both ends, and its processor changes the rows of target and drafts alike.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from specpair.options.option import option
from specpair.speculation.sampling.grammar import GrammarOptions
from specpair.speculation.sampling.row_changes import LogitProcessor, ProcessorContext, ProcessorOptions
from specpair.speculation.sampling.top_logits import Logits

PENALTY = 2.0  # the greatest frequency and presence penalty; the least is its negative
REPETITION = (0.01, 100.0)  # range of the repetition penalty: beyond it, float32 logits could overflow
MOST_MIN_TOKENS = 2**53  # so many that no end token ever comes
BIAS = 100.0  # the greatest bias of an id; the least is its negative
MOST_BIASES = 20_000  # of a request: each costs other requests microseconds


class EndsLater(LogitProcessor):
    """Masks the end tokens while the output has fewer than `least` tokens."""

    limits: ClassVar[bool] = True

    def __init__(self, ends: Iterable[int], least: int) -> None:
        self._all_ends = frozenset(ends)
        self._ends, self._least, self._length = np.array(sorted(ends), np.int64), least, 0

    def push(self, token: int) -> None:
        self._length += 1

    def pop(self, token: int) -> None:
        self._length -= 1

    def process(self, row: Logits) -> None:
        if self._length < self._least:
            logits = row[self._ends]
            row[self._ends] = -inf
            if row.max() == -inf:  # nothing but the end can come
                row[self._ends] = logits

    def allows(self, token: int) -> bool:
        return self._length >= self._least or token not in self._all_ends


@dataclass(frozen=True, kw_only=True)
class MinTokens(ProcessorOptions):
    min_tokens: int = option(
        0,
        "mask the end tokens until the text has so many tokens; it ends all the same with a stop string, and where a "
        "grammar allows nothing else",
        ge=0,
        le=MOST_MIN_TOKENS,
        group="sampling",
        placeholder="N",
    )

    def make(self, text: ProcessorContext) -> LogitProcessor | None:
        return EndsLater(text.ends, self.min_tokens) if self.min_tokens else None


def token_id(key: str) -> int | None:
    """The token id that a key of a JSON object names: a decimal number of at most nine digits; None: it names none."""
    plain = key.isascii() and key.isdigit() and len(key) < 10
    return int(key) if plain and str(int(key)) == key else None


def _first_wrong(biases: Any) -> Any:
    """The first wrong bias alone, if there is one: to name every wrong one of hundreds of thousands takes seconds."""
    if isinstance(biases, dict) and len(biases) > MOST_BIASES:
        raise ValueError(f"there are {len(biases)} biases, at most {MOST_BIASES} are taken")
    for token, bias in biases.items() if isinstance(biases, dict) else ():
        if token_id(token) is None:
            raise ValueError(f"{token[:20]!r} is no token id: write it as a decimal number")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -BIAS <= bias <= BIAS:
            return {token: bias}
    return biases


def _json() -> Any:
    from pydantic import BeforeValidator, Field  # only here: an engine can be measured without

    return Annotated[
        dict[str, Annotated[float, Field(ge=-BIAS, le=BIAS)]],
        BeforeValidator(_first_wrong),
        Field(json_schema_extra={"propertyNames": {"pattern": "^(0|[1-9][0-9]{0,8})$"}}),  # what `token_id` takes
    ]


def _wrong_biases(biases: Any) -> str | None:
    """What is wrong with biases that a program gave; None: nothing."""
    if not isinstance(biases, Mapping):
        return f"logit_bias must map token ids to numbers, got {biases!r}"
    for token, bias in biases.items():
        if type(token) is not int or type(bias) not in (float, int):
            return f"logit_bias must map token ids to numbers, got {token!r}: {bias!r}"
        if token < 0:
            return f"logit_bias names {token}, which is no token id: ids are 0 or greater"
        if not -BIAS <= bias <= BIAS:
            return f"logit_bias of token {token} must be in [{-BIAS:g}, {BIAS:g}], got {bias}"
    return None


def _bias(text: str) -> tuple[int, float]:
    """A token id and its bias, written ID=BIAS. Raises ValueError."""
    token, _, value = text.partition("=")
    if token_id(token) is None:
        raise ValueError(f"{text!r} is not of the form ID=BIAS, such as 15=-100")
    try:
        bias = float(value)
    except ValueError:
        raise ValueError(f"{text!r} is not of the form ID=BIAS, such as 15=-100") from None
    if not -BIAS <= bias <= BIAS:
        raise ValueError(f"must be in [{-BIAS:g}, {BIAS:g}], got {value}")
    return int(token), bias


class Biases(LogitProcessor):
    """Adds a bias to the logits of some ids."""

    def __init__(self, biases: Mapping[int, float], size: int | None = None) -> None:
        """`biases`: of each id.
        `size`: ids of a row; those beyond are left out.
        """
        kept = [(token, bias) for token, bias in sorted(biases.items()) if size is None or token < size]
        self._ids = np.array([token for token, _ in kept], np.int64)
        self._biases = np.array([bias for _, bias in kept], np.float32)

    def process(self, row: Logits) -> None:
        row[self._ids] += self._biases


@dataclass(frozen=True, kw_only=True)
class LogitBias(ProcessorOptions):
    logit_bias: Mapping[int, float] = option(
        factory=dict,
        hash=False,
        words="for token ids, what is added to their logits, -100 to 100",
        group="sampling",
        placeholder="ID=BIAS",
        json=_json,
        to_json=lambda biases: {str(token): float(bias) for token, bias in sorted(biases.items())},
        of_json=lambda biases: {int(token): bias for token, bias in biases.items()},
        item=_bias,
        items=dict,
        wrong=_wrong_biases,
    )

    def make(self, text: ProcessorContext) -> LogitProcessor | None:
        return Biases(self.logit_bias, text.size) if self.logit_bias else None


class TokenCounts:
    """How often each token id occurs. To add or remove a token takes the same time for any length of text."""

    def __init__(self, size: int | None) -> None:
        """`size`: ids that count, those below it; None: all."""
        self._size = size
        self._indices: dict[int, int] = {}  # where each id is in the arrays
        self._ids, self._counts = np.zeros(64, np.int64), np.zeros(64, np.float32)

    def add(self, token: int) -> None:
        if self._size is not None and token >= self._size:
            return
        index = self._indices.setdefault(token, len(self._indices))
        if index == len(self._ids):
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._ids[index] = token
        self._counts[index] += 1

    def remove(self, token: int) -> None:
        """Remove the token that was added last, of those that were not removed."""
        if self._size is not None and token >= self._size:
            return
        index = self._indices[token]
        self._counts[index] -= 1
        if not self._counts[index]:  # it was added last, so its index is the last one
            del self._indices[token]

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids that occur, shape (n,), in the order in which they came."""
        return self._ids[: len(self._indices)]

    @property
    def counts(self) -> Logits:
        """How often each of `ids` occurs, float32 of shape (n,)."""
        return self._counts[: len(self._indices)]


class LowerRepeated(LogitProcessor):
    """Divides the positive logits of ids in prompt or output by a penalty, and multiplies the negative ones by it."""

    def __init__(self, penalty: float, size: int | None = None) -> None:
        """`size`: ids of a row; those beyond are left out."""
        self._penalty, self._seen = penalty, TokenCounts(size)

    def begin(self, prompt: Sequence[int]) -> None:
        for token in dict.fromkeys(prompt):
            self._seen.add(token)

    def push(self, token: int) -> None:
        self._seen.add(token)

    def pop(self, token: int) -> None:
        self._seen.remove(token)

    def process(self, row: Logits) -> None:
        ids = self._seen.ids
        logits = row[ids]
        row[ids] = np.where(logits > 0, logits / self._penalty, logits * self._penalty)


@dataclass(frozen=True, kw_only=True)
class RepetitionPenalty(ProcessorOptions):
    repetition_penalty: float = option(
        1.0,
        "divide positive logits, and multiply negative ones, of tokens in prompt or text by this; 1: off",
        ge=REPETITION[0],
        le=REPETITION[1],
        group="sampling",
        placeholder="X",
    )

    def make(self, text: ProcessorContext) -> LogitProcessor | None:
        return LowerRepeated(self.repetition_penalty, text.size) if self.repetition_penalty != 1.0 else None


class LowerWritten(LogitProcessor):
    """Lowers the logits of ids in the output: by `presence`, and by `frequency` for each time that they occur."""

    def __init__(self, frequency: float, presence: float, size: int | None = None) -> None:
        """`size`: ids of a row; those beyond are left out."""
        self._frequency, self._presence, self._output = frequency, presence, TokenCounts(size)

    def push(self, token: int) -> None:
        self._output.add(token)

    def pop(self, token: int) -> None:
        self._output.remove(token)

    def process(self, row: Logits) -> None:
        row[self._output.ids] -= self._frequency * self._output.counts + self._presence


@dataclass(frozen=True, kw_only=True)
class OutputPenalties(ProcessorOptions):
    presence_penalty: float = option(
        0.0,
        "subtract this from the logits of tokens that the text has, the prompt excluded; 0: off",
        ge=-PENALTY,
        le=PENALTY,
        group="sampling",
        placeholder="X",
    )
    frequency_penalty: float = option(
        0.0,
        "subtract this from the logits of tokens for each time that the text has them; 0: off",
        ge=-PENALTY,
        le=PENALTY,
        group="sampling",
        placeholder="X",
    )

    def make(self, text: ProcessorContext) -> LogitProcessor | None:
        if not (self.frequency_penalty or self.presence_penalty):
            return None
        return LowerWritten(self.frequency_penalty, self.presence_penalty, text.size)


class LowerProbable(LogitProcessor):
    """Masks ids whose probability at `temperature` is less than `min_p` (above 0) times the greatest one."""

    def __init__(self, min_p: float, temperature: float) -> None:
        self._reach = temperature * log(min_p)  # p_i / p_max = exp((l_i - l_max) / temperature)

    def process(self, row: Logits) -> None:
        least = float(row.max()) + self._reach
        floor = np.float32(least)
        if floor < least:  # so that comparing in float32 decides as float64 would
            floor = np.nextafter(floor, np.float32(inf))
        row[row < floor] = -inf


@dataclass(frozen=True, kw_only=True)
class MinP(ProcessorOptions):
    min_p: float = option(
        0.0,
        "mask tokens of less than this share of the greatest probability; 0: off",
        ge=0.0,
        le=1.0,
        group="sampling",
        placeholder="P",
    )

    def make(self, text: ProcessorContext) -> LogitProcessor | None:
        return LowerProbable(self.min_p, text.temperature) if self.min_p and text.temperature else None


@dataclass(frozen=True, kw_only=True)
class Processors(GrammarOptions, MinTokens, LogitBias, RepetitionPenalty, OutputPenalties, MinP):
    """The options of all processors. They change a row in the order of the bases."""

    def make(self, text: ProcessorContext) -> None:
        """There is no processor of all of them: see `made`."""

    def made(self, text: ProcessorContext) -> list[LogitProcessor]:
        """New processors, in their order; none where no row changes."""
        made = (each.make(self, text) for each in Processors.__bases__ if issubclass(each, ProcessorOptions))
        return [each for each in made if each is not None]
