"""Common keys of the file: values with a range, paths relative to the file, random numbers."""

import random
from collections.abc import Sequence
from math import log, sqrt
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema, model_validator

from specpair.command_line.layers import KnownKeys

FOLDER = "folder"  # in the context of a validation: where the files lie that relative paths name
MS = 1e-3  # seconds


class Keys(KnownKeys):
    """Keys of the file. Their descriptions are the texts behind them."""

    model_config = ConfigDict(strict=True, frozen=True, use_attribute_docstrings=True)


class Mistake(ValueError):
    """Keys do not go together. `at`: the path of the first wrong key, from the checked object on."""

    def __init__(self, message: str, *at: str | int) -> None:
        super().__init__(message)
        self.at = at


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(min_length=1, pattern=r"^[\w.-]+$")]


def _relative_to_file(given: Any, info: ValidationInfo) -> Any:
    if not isinstance(given, str):
        raise ValueError("must be the path of a file")
    path = Path((info.context or {}).get(FOLDER, ".")) / given
    if not path.is_file():
        raise ValueError(f"no file {path}")
    return path


File = Annotated[Path, BeforeValidator(_relative_to_file), WithJsonSchema({"type": "string", "format": "path"})]


class _Distribution(Keys):
    def draw(self, rng: random.Random) -> float:
        """A value, 0 or more."""
        raise NotImplementedError

    def whole(self, rng: random.Random) -> int:
        """A drawn number of tokens or turns: the nearest whole one, at least 1."""
        return max(1, round(self.draw(rng)))


def _ascending(given: Any) -> Any:
    if given.max is not None and given.min > given.max:
        raise Mistake(f"min, {given.min:g}, is above max, {given.max:g}", "min")
    return given


class ConstantNumber(_Distribution):
    """A constant. A plain number means this."""

    distribution: Literal["constant"]
    value: NonNegative
    """the number"""

    def draw(self, rng: random.Random) -> float:
        return self.value


class UniformNumber(_Distribution):
    """Uniformly distributed between two numbers."""

    distribution: Literal["uniform"]
    min: NonNegative
    """the least"""
    max: NonNegative
    """the greatest"""

    _ascend = model_validator(mode="after")(_ascending)

    def draw(self, rng: random.Random) -> float:
        return rng.uniform(self.min, self.max)


class ExponentialNumber(_Distribution):
    """Exponentially distributed."""

    distribution: Literal["exponential"]
    mean: Positive
    """the mean"""

    def draw(self, rng: random.Random) -> float:
        return rng.expovariate(1.0 / self.mean)


class LogNormalNumber(_Distribution):
    """Log-normally distributed: a long tail, as of lengths of texts and pauses."""

    distribution: Literal["lognormal"]
    mean: Positive
    """the mean, before numbers beyond the bounds become these"""
    cv: Positive
    """standard deviation over mean"""
    min: NonNegative = 0.0
    """the least"""
    max: NonNegative | None = None
    """the greatest; null: none"""

    _ascend = model_validator(mode="after")(_ascending)

    def draw(self, rng: random.Random) -> float:
        variance = log(1.0 + self.cv * self.cv)  # of the logarithm
        drawn = max(rng.lognormvariate(log(self.mean) - variance / 2, sqrt(variance)), self.min)
        return drawn if self.max is None else min(drawn, self.max)


class EmpiricalNumber(_Distribution):
    """One of several numbers, equally likely."""

    distribution: Literal["empirical"]
    values: Annotated[list[NonNegative], Field(min_length=1)]
    """the numbers"""

    def draw(self, rng: random.Random) -> float:
        return rng.choice(self.values)


def _number(given: Any) -> Any:
    if isinstance(given, int | float) and not isinstance(given, bool):
        return {"distribution": "constant", "value": given}
    return given


_Forms = Annotated[
    ConstantNumber | UniformNumber | ExponentialNumber | LogNormalNumber | EmpiricalNumber,
    Field(discriminator="distribution"),
]
Number = Annotated[_Forms, BeforeValidator(_number, json_schema_input_type=NonNegative | _Forms)]
"""A number, or the distribution that it is drawn from."""


def repeated(names: Sequence[str]) -> int | None:
    """The index of the first repeated name; None: all names differ."""
    return next((at for at, name in enumerate(names) if name in names[:at]), None)


def constant(value: float) -> ConstantNumber:
    """A constant number, as a default."""
    return ConstantNumber(distribution="constant", value=value)
