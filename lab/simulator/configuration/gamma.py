"""The key `gamma`: how long drafts are."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from lab.simulator.configuration.keys import FOLDER, Keys, Positive, Share
from lab.simulator.drafting import policies
from lab.simulator.drafting.lengths import LengthPolicy
from specpair.plugins import class_at

Length = Annotated[int, Field(ge=1, le=64)]
Lengths = int | Callable[[], LengthPolicy] | None  # of drafts, as `lab.simulator.fleet.settings.Device` has it


class _Gamma(Keys):
    @property
    def trees(self) -> bool:
        """Whether drafts are trees where that pays; else they are chains."""
        return False


class Auto(_Gamma):
    """Chains, as long as the drafter's controller decides. `auto` alone means this."""

    policy: Literal["auto"]

    def built(self) -> Lengths:
        return None


class Constant(_Gamma):
    """Always the same length. A mere number means this."""

    policy: Literal["constant"]
    length: Length
    """draft tokens"""

    def built(self) -> Lengths:
        return self.length


class _Bounded(_Gamma):
    least: Length = 1
    """the shortest draft"""
    most: Length = 16
    """the longest draft"""

    @model_validator(mode="after")
    def _ascend(self) -> "_Bounded":
        if self.least > self.most:
            raise ValueError(f"least, {self.least}, is above most, {self.most}")
        return self


class SpecDec(_Gamma):
    """A draft stops where a rejection is likelier than a threshold: SpecDec++, arXiv 2405.19715."""

    policy: Literal["specdec++"]
    threshold: Share = 0.7
    """the chance, that one of the draft tokens is rejected, with which the draft is sent"""
    most: Length = 16
    """the longest draft"""

    def built(self) -> Lengths:
        return partial(policies.SpecDecPlusPlus, self.threshold, self.most)


class AcceptanceBackoff(_Bounded):
    """Drafts grow after one that was accepted whole, and shrink after another."""

    policy: Literal["acceptance_backoff"]
    first: Length = 5
    """the length of a text's first draft"""
    grow: Length = 2
    """by how much they grow"""
    shrink: Length = 1
    """by how much they shrink"""

    def built(self) -> Lengths:
        return partial(policies.AcceptanceBackoff, self.first, self.least, self.most, self.grow, self.shrink)


class LatencyBackoff(_Bounded):
    """Drafting takes at most a share of what a round takes anyway, its round trip and its pass."""

    policy: Literal["latency_backoff"]
    share: Positive = 0.5
    """the share"""

    def built(self) -> Lengths:
        return partial(policies.LatencyBackoff, self.share, self.least, self.most)


class Tree(_Gamma):
    """Trees where they pay, as the drafter's controller decides. `tree` alone means this."""

    policy: Literal["tree"]

    def built(self) -> Lengths:
        return None

    @property
    def trees(self) -> bool:
        return True


class Own(_Gamma):
    """A policy of your own: a class that inherits from `lab.simulator.drafting.lengths.LengthPolicy`. Meant by
    `module:Class` alone."""

    policy: Literal["own"]
    at: str
    """`module:Class`"""

    @model_validator(mode="after")
    def _is_there(self, info: ValidationInfo) -> "Own":
        folder = str(Path((info.context or {}).get(FOLDER, ".")).resolve())
        if folder not in sys.path:
            sys.path.append(folder)
        self.built()
        return self

    def built(self) -> Lengths:
        return class_at(self.at, LengthPolicy)


def _gamma(given: Any) -> Any:
    """A number, `auto`, `tree` or `module:Class`, written in full."""
    if type(given) is int:
        return {"policy": "constant", "length": given}
    if given in ("auto", "tree"):
        return {"policy": given}
    if isinstance(given, str) and ":" in given:
        return {"policy": "own", "at": given}
    if not isinstance(given, dict | _Gamma):
        raise ValueError(f"must be a whole number, auto, tree, module:Class, or have the key policy, got {given!r}")
    return given


_Policies = Annotated[
    Auto | Constant | SpecDec | AcceptanceBackoff | LatencyBackoff | Tree | Own, Field(discriminator="policy")
]
_Short = Length | Literal["auto", "tree"] | Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
Gamma = Annotated[_Policies, BeforeValidator(_gamma, json_schema_input_type=_Short | _Policies)]
"""How long drafts are. `built()` and `trees` give the `length` and the `trees` of a device."""

AUTO = Auto(policy="auto")
