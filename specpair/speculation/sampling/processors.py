"""The logit processors that a text can ask for: each is a dataclass with its options, which makes the processor.

To add one: write its class, and name it among the bases of `Processors`. Its options then are options of every request,
command and program, at both ends, and its processor changes the rows of target and drafts alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from specpair.options.option import option
from specpair.speculation.sampling.grammar import GrammarOptions
from specpair.speculation.sampling.processor_options import ProcessorContext, ProcessorOptions
from specpair.speculation.sampling.row_changes import (
    Biases,
    EndsLater,
    LogitProcessor,
    LowerProbable,
    LowerRepeated,
    LowerWritten,
)

PENALTY = 2.0  # the greatest frequency and presence penalty; the least is its negative
REPETITION = (0.01, 100.0)  # range of the repetition penalty: beyond it, float32 logits could overflow
MOST_MIN_TOKENS = 2**53  # so many that no end token ever comes
BIAS = 100.0  # the greatest bias of an id; the least is its negative
MOST_BIASES = 20_000  # of a request: each costs other requests microseconds


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
