"""The keys of `devices`: verifiers and drafters, of kinds."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from simulator.configuration.keys import Count, File, Keys, Name, NonNegative, Number, Positive, Share
from simulator.costs.catalogue import roofline
from simulator.costs.cost import PassCost
from simulator.costs.linear import LinearCost
from simulator.costs.tables import read_table
from simulator.workload.availability import Always, Availability
from simulator.workload.availability import ComesAndGoes as OnOff


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


class MeasuredCost(Keys):
    """A pass takes as long as on the device where it was measured."""

    law: Literal["table"]
    table_path: File
    """what `python -m benchmarks.verify_curve` wrote, as JSON"""

    def built(self) -> PassCost:
        """Raises BadCost for a file that is no table."""
        return read_table(Path(self.table_path))


Cost = Annotated[StatedCost | MeasuredCost, Field(discriminator="law")]


class Kind(Keys):
    """Devices that are alike."""

    name: Name
    """tells the kind from the others; connections and prices name it"""
    count: Count = 1
    """how many"""
    model: str | None = None
    """the model's name in the catalogue"""
    device: str | None = None
    """the name in the catalogue of the device, or of a group of devices that hold the model together"""
    weights: str = "bf16"
    """number type of the model's weights, with `model` and `device`"""
    cache: str = "bf16"
    """number type of the KV cache, with `model` and `device`"""
    cost: Cost | None = None
    """what a pass takes, in place of `model` and `device`"""

    @model_validator(mode="after")
    def _has_a_cost(self) -> "Kind":
        named = [name for name in ("model", "device") if getattr(self, name) is not None]
        if len(named) != (2 if self.cost is None else 0):
            has = " and ".join([*named, *(["cost"] if self.cost is not None else [])]) or "neither"
            raise ValueError(f"{self.name}: has {has}: give model and device, or cost")
        if self.cost is None:
            self.pass_cost()  # raises BadCost, a ValueError, for names that are in no catalogue
        return self

    def pass_cost(self) -> PassCost:
        """What a pass of one of these devices takes. Raises BadCost for a file that is no table."""
        if self.cost is not None:
            return self.cost.built()
        assert self.model is not None and self.device is not None, "checked when the file was read"
        return roofline(self.model, self.device, weights=self.weights, cache=self.cache)


class Verifiers(Kind):
    """Verifiers, each with its target model."""

    slots: Count = 8
    """texts at once, each with its KV cache"""
    weight: Positive = 1.0
    """texts that it can take in relation to others, for routers that weigh"""
    prefill_chunk: Count = 128
    """tokens of prompts in a pass, at most, while other texts are active"""


class ComesAndGoes(Keys):
    """Devices that are there for a while, then away for a while, as phones are."""

    on_s: Number
    """how long one is there"""
    off_s: Number
    """how long it is away"""
    there_at_first: Share = 1.0
    """the share that is there at the beginning"""

    def built(self) -> Availability:
        return OnOff(self.on_s.built(1.0), self.off_s.built(1.0), self.there_at_first)


class StatedAgreement(Keys):
    """How often the draft model chooses the target's token, by position in the draft."""

    law: Literal["stated"]
    by_position: Annotated[list[Share], Field(min_length=1)]
    """of the first draft token, the second, …, each given that those before agreed; the last holds for all further"""


class ProfiledAgreement(Keys):
    """As in a recorded run."""

    law: Literal["profile"]
    profile_path: File
    """the profile"""


def _agreement(given: object) -> object:
    """A share, or shares by position, written in full."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = [given]
    return {"law": "stated", "by_position": given} if isinstance(given, list) else given


_Laws = Annotated[StatedAgreement | ProfiledAgreement, Field(discriminator="law")]
Agreement = Annotated[_Laws, BeforeValidator(_agreement, json_schema_input_type=Share | list[Share] | _Laws)]


class Drafters(Kind):
    """Drafters, each with its draft model and one user at a time."""

    agreement: Agreement
    """how often the draft model chooses the target's token: a share, shares by position, or a profile"""
    availability: ComesAndGoes | None = None
    """when a device is there; null: always"""

    def periods(self) -> Availability:
        return Always() if self.availability is None else self.availability.built()


class Devices(Keys):
    """All machines of the fleet."""

    verifiers: Annotated[list[Verifiers], Field(min_length=1)]
    """kinds of verifiers"""
    drafters: list[Drafters] = Field(default_factory=list)
    """kinds of drafters; none is needed in the modes target and fused"""

    @model_validator(mode="after")
    def _names_differ(self) -> "Devices":
        names = self.names()
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two kinds are called {twice!r}")
        return self

    def names(self) -> list[str]:
        """Of all kinds."""
        return [kind.name for kind in (*self.verifiers, *self.drafters)]
