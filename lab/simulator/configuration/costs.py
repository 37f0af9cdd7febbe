"""The keys that say what a pass takes."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from lab.simulator.configuration.keys import File, Keys, Mistake, NonNegative, Positive
from lab.simulator.costs.catalogue import roofline
from lab.simulator.costs.cost import PassCost
from lab.simulator.costs.linear import LinearCost
from lab.simulator.costs.roofline import Roofline
from lab.simulator.costs.tables import read_table


class StatedCost(Keys):
    """A pass takes a time that is linear in its tokens and sequences."""

    law: Literal["linear"]
    decode_ms: Positive
    """a pass over one token of one sequence"""
    per_token_ms: NonNegative = 0.0
    """added by each further token, of whichever sequence"""
    per_sequence_ms: NonNegative = 0.0
    """added by each further sequence, beside its tokens"""

    def built(self) -> PassCost:
        return LinearCost(self.decode_ms, self.per_token_ms, self.per_sequence_ms)


class TableCost(Keys):
    """A pass takes as long as on the device where it was measured."""

    law: Literal["table"]
    table_path: File | Annotated[list[File], Field(min_length=1)]
    """what `python -m lab.benchmarks.verify_curve` wrote, as JSON; several files, if they are at different contexts"""

    def built(self) -> PassCost:
        """Raises BadCost for a file that is no table."""
        return read_table(*([self.table_path] if isinstance(self.table_path, Path) else self.table_path))


Cost = Annotated[StatedCost | TableCost, Field(discriminator="law")]


class Costly(Keys):
    """A model on a device, by name or by what a pass takes."""

    model: str | None = None
    """the model's name in the catalogue"""
    device: str | None = None
    """the name in the catalogue of the device, or of a group of devices that hold the model together"""
    weights: str = "bf16"
    """number type of the model's weights, with `model` and `device`"""
    cache: str = "bf16"
    """number type of the KV cache, with `model` and `device`"""
    catalogue_path: File | None = None
    """models and devices of your own by their sizes, as TOML, beside those of the catalogue"""
    cost: Cost | None = None
    """what a pass takes, in place of `model` and `device`"""

    @model_validator(mode="after")
    def _has_a_cost(self) -> "Costly":
        named = [name for name in ("model", "device") if getattr(self, name) is not None]
        if len(named) != (2 if self.cost is None else 0):
            has = " and ".join([*named, *(["cost"] if self.cost is not None else [])]) or "neither"
            raise Mistake(f"{self.called()}: has {has}: give model and device, or cost", *named[:1])
        if self.cost is None:
            self.pass_cost()  # raises BadCost, a ValueError, for names that are in no catalogue
        return self

    def called(self) -> str:
        """What errors call it."""
        return "the draft model"

    def held_tokens(self) -> int | None:
        """Tokens of KV cache that the device's memory holds beside the weights; None where it is not named."""
        cost = None if self.device is None else self.pass_cost()
        return cost.cache_tokens() if isinstance(cost, Roofline) else None

    def pass_cost(self) -> PassCost:
        """What a pass takes. Raises BadCost for a file that is none of a cost."""
        if self.cost is not None:
            return self.cost.built()
        assert self.model is not None and self.device is not None, "checked when the file was read"
        own = [] if self.catalogue_path is None else [self.catalogue_path]
        return roofline(self.model, self.device, *own, weights=self.weights, cache=self.cache)
