"""What the keys of the file have in common: values with a range, files beside it, numbers that may be drawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema, model_validator

from lab.simulator.workload import distributions
from specpair.command_line.known_keys import KnownKeys

FOLDER = "folder"  # in the context of a validation: where the files lie that relative paths name


class Keys(KnownKeys):
    """Keys of the file. Their descriptions are the texts behind them."""

    model_config = ConfigDict(strict=True, frozen=True, use_attribute_docstrings=True)


class Mistake(ValueError):
    """Keys do not go together. `at`: the path of the first that is at fault, from the object that is checked on."""

    def __init__(self, message: str, *at: str | int) -> None:
        super().__init__(message)
        self.at = at


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
AtLeastOne = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(min_length=1, pattern=r"^[\w.-]+$")]


def _beside(given: Any, info: ValidationInfo) -> Any:
    if not isinstance(given, str):
        raise ValueError("must be the path of a file")
    path = Path((info.context or {}).get(FOLDER, ".")) / given
    if not path.is_file():
        raise ValueError(f"no file {path}")
    return path


File = Annotated[Path, BeforeValidator(_beside), WithJsonSchema({"type": "string", "format": "path"})]


class ConstantNumber(Keys):
    """Always the same. A mere number means this."""

    distribution: Literal["constant"]
    value: NonNegative
    """the number"""

    def built(self, unit: float) -> distributions.Distribution:
        return distributions.Constant(self.value * unit)


class UniformNumber(Keys):
    """All numbers between two alike."""

    distribution: Literal["uniform"]
    min: NonNegative
    """the least"""
    max: NonNegative
    """the greatest"""

    @model_validator(mode="after")
    def _ascend(self) -> "UniformNumber":
        _check_bounds(self.min, self.max)
        return self

    def built(self, unit: float) -> distributions.Distribution:
        return distributions.Uniform(self.min * unit, self.max * unit)


class ExponentialNumber(Keys):
    """Without memory."""

    distribution: Literal["exponential"]
    mean: Positive
    """the mean"""

    def built(self, unit: float) -> distributions.Distribution:
        return distributions.Exponential(self.mean * unit)


class LogNormalNumber(Keys):
    """With a long tail, as lengths of texts and pauses have."""

    distribution: Literal["lognormal"]
    mean: Positive
    """the mean, before numbers beyond the bounds become these"""
    cv: Positive
    """standard deviation over mean"""
    min: NonNegative = 0.0
    """the least"""
    max: NonNegative | None = None
    """the greatest; null: none"""

    @model_validator(mode="after")
    def _ascend(self) -> "LogNormalNumber":
        _check_bounds(self.min, self.max)
        return self

    def built(self, unit: float) -> distributions.Distribution:
        most = float("inf") if self.max is None else self.max * unit
        return distributions.LogNormal(self.mean * unit, self.cv, self.min * unit, most)


class EmpiricalNumber(Keys):
    """One of several, each as likely."""

    distribution: Literal["empirical"]
    values: Annotated[list[NonNegative], Field(min_length=1)]
    """the numbers"""

    def built(self, unit: float) -> distributions.Distribution:
        return distributions.Empirical(tuple(value * unit for value in self.values))


def _check_bounds(least: float, most: float | None) -> None:
    if most is not None and least > most:
        raise Mistake(f"min, {least:g}, is above max, {most:g}", "min")


def _number(given: Any) -> Any:
    if isinstance(given, int | float) and not isinstance(given, bool):
        return {"distribution": "constant", "value": given}
    return given


_Forms = Annotated[
    ConstantNumber | UniformNumber | ExponentialNumber | LogNormalNumber | EmpiricalNumber,
    Field(discriminator="distribution"),
]
Number = Annotated[_Forms, BeforeValidator(_number, json_schema_input_type=NonNegative | _Forms)]
"""A number, or the distribution that it is drawn from. `built(unit)` gives that distribution in units of `unit`."""


def repeated(names: Sequence[str]) -> int | None:
    """Where the first name stands that stood there before; None: they all differ."""
    return next((at for at, name in enumerate(names) if name in names[:at]), None)


def constant(value: float) -> ConstantNumber:
    """As a default."""
    return ConstantNumber(distribution="constant", value=value)
