"""The logit processors of requests, and their options.

To add one: write its class, give its options to `RowOptions`, and make it in `Processors.made`. Its options then are
options of every request, command and program, at both ends, and it changes the rows of target and drafts alike.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from specpair.options.option import option
from specpair.speculation.sampling.grammar import GrammarOptions
from specpair.speculation.sampling.row_changes import LogitProcessor, MakeGrammar
from specpair.speculation.sampling.top_logits import Logits

PENALTY = 2.0  # the greatest frequency and presence penalty; the least is its negative
REPETITION = (0.01, 100.0)  # range of the repetition penalty: beyond it, float32 logits could overflow
MOST_MIN_TOKENS = 2**53  # so many that no end token ever comes
BIAS = 100.0  # the greatest bias of an id; the least is its negative
MOST_BIASES = 20_000  # of a request: each costs other requests microseconds


class EndsLater(LogitProcessor):
    """Masks the end tokens while the output has fewer than `least` tokens."""

    limits: ClassVar[bool] = True

    def __init__(self, ends: Collection[int], least: int) -> None:
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


def token_id(key: str) -> int | None:
    """The token id that a key of a JSON object names: a decimal number of at most nine digits; None: it names none."""
    plain = key.isascii() and key.isdigit() and len(key) < 10
    return int(key) if plain and str(int(key)) == key else None


def _first_wrong(biases: Any) -> Any:
    """The first wrong bias alone, if any: naming every wrong bias of hundreds of thousands takes seconds."""
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
    """The error for a program's biases; None: they are valid."""
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
    key, _, value = text.partition("=")
    token, bias = token_id(key), 0.0
    try:
        bias = float(value)
    except ValueError:
        token = None
    if token is None:
        raise ValueError(f"{text!r} is not of the form ID=BIAS, such as 15=-100")
    if not -BIAS <= bias <= BIAS:
        raise ValueError(f"must be in [{-BIAS:g}, {BIAS:g}], got {value}")
    return token, bias


class Biases(LogitProcessor):
    """Adds a bias to the logits of some ids."""

    def __init__(self, biases: Mapping[int, float], size: int | None = None) -> None:
        """`size`: ids of a row; those beyond are left out."""
        kept = [(token, bias) for token, bias in sorted(biases.items()) if size is None or token < size]
        self._ids = np.array([token for token, _ in kept], np.int64)
        self._biases = np.array([bias for _, bias in kept], np.float32)

    def process(self, row: Logits) -> None:
        row[self._ids] += self._biases


class _Counting(LogitProcessor):
    """Counts how often each token id occurs. A token takes the same time for any length of text."""

    def __init__(self, size: int | None) -> None:
        """`size`: ids of a row: those beyond do not count; None: all count."""
        self._size = size
        self._indices: dict[int, int] = {}  # where each id is in the arrays
        self._ids, self._counts = np.zeros(64, np.int64), np.zeros(64, np.float32)

    def push(self, token: int) -> None:
        if self._size is not None and token >= self._size:
            return
        index = self._indices.setdefault(token, len(self._indices))
        if index == len(self._ids):
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._ids[index] = token
        self._counts[index] += 1

    def pop(self, token: int) -> None:
        if self._size is not None and token >= self._size:
            return
        index = self._indices[token]
        self._counts[index] -= 1
        if not self._counts[index]:  # it was pushed last, so its index is the last one
            del self._indices[token]

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids that occur, shape (n,), in the order in which they came."""
        return self._ids[: len(self._indices)]


class LowerRepeated(_Counting):
    """Divides the positive logits of ids in prompt or output by a penalty, and multiplies the negative ones by it."""

    def __init__(self, penalty: float, size: int | None = None) -> None:
        super().__init__(size)
        self._penalty = penalty

    def begin(self, prompt: Sequence[int]) -> None:
        for token in dict.fromkeys(prompt):
            self.push(token)

    def process(self, row: Logits) -> None:
        ids = self.ids
        logits = row[ids]
        row[ids] = np.where(logits > 0, logits / self._penalty, logits * self._penalty)


class LowerWritten(_Counting):
    """Lowers the logits of ids in the output: by `presence`, and by `frequency` for each time that they occur."""

    def __init__(self, frequency: float, presence: float, size: int | None = None) -> None:
        super().__init__(size)
        self._frequency, self._presence = frequency, presence

    def process(self, row: Logits) -> None:
        row[self.ids] -= self._frequency * self._counts[: len(self._indices)] + self._presence


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
class RowOptions:
    """The options of all processors but that of a grammar."""

    min_p: float = option(
        0.0,
        "leave out tokens with less than this share of the greatest probability; 0: off",
        ge=0.0,
        le=1.0,
        group="sampling",
        placeholder="P",
    )
    presence_penalty: float = option(
        0.0,
        "subtract this from the logits of tokens that occur in the text, without the prompt; 0: off",
        ge=-PENALTY,
        le=PENALTY,
        group="sampling",
        placeholder="X",
    )
    frequency_penalty: float = option(
        0.0,
        "subtract this from a token's logit for each time that the token occurs in the text, without "
        "the prompt; 0: off",
        ge=-PENALTY,
        le=PENALTY,
        group="sampling",
        placeholder="X",
    )
    repetition_penalty: float = option(
        1.0,
        "divide positive logits, and multiply negative ones, of tokens in the prompt or the text by this; 1: off",
        ge=REPETITION[0],
        le=REPETITION[1],
        group="sampling",
        placeholder="X",
    )
    logit_bias: Mapping[int, float] = option(
        factory=dict,
        hash=False,
        words="add a bias, -100 to 100, to the logit of a token id",
        group="sampling",
        placeholder="ID=BIAS",
        json=_json,
        to_json=lambda biases: {str(token): float(bias) for token, bias in sorted(biases.items())},
        of_json=lambda biases: {int(token): bias for token, bias in biases.items()},
        item=_bias,
        items=dict,
        wrong=_wrong_biases,
    )
    min_tokens: int = option(
        0,
        "no end token before the text has this many tokens; a stop string still ends the text, and so "
        "does a grammar that allows nothing else",
        ge=0,
        le=MOST_MIN_TOKENS,
        group="sampling",
        placeholder="N",
    )


@dataclass(frozen=True, kw_only=True)
class Processors(GrammarOptions, RowOptions):
    """The options of all processors."""

    def made(
        self, ends: Collection[int], size: int | None, temperature: float, grammars: MakeGrammar | None
    ) -> list[LogitProcessor]:
        """As `Sampling.processors`, in the order in which they change a row. `temperature`: 0: the argmax is taken."""
        frequency, presence = self.frequency_penalty, self.presence_penalty
        made = (
            self.mask(grammars),
            EndsLater(ends, self.min_tokens) if self.min_tokens else None,
            Biases(self.logit_bias, size) if self.logit_bias else None,
            LowerRepeated(self.repetition_penalty, size) if self.repetition_penalty != 1.0 else None,
            LowerWritten(frequency, presence, size) if frequency or presence else None,
            LowerProbable(self.min_p, temperature) if self.min_p and temperature else None,
        )
        return [each for each in made if each is not None]
