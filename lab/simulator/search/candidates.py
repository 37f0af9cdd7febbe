"""The candidates of a search: all combinations of the values that keys may have. Pure but for files that keys name."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from lab.given_files import Loader, first_mistake, keys_of
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.keys import Keys, Share
from lab.simulator.configuration.reading import BadConfiguration, read

VARIANT = "variant"  # the name of the choice between sets of values

Changes = dict[str, Any]  # values by the paths of their keys


class BadSearch(ValueError):
    """A search cannot be made. The message says why, and what to do."""


class SearchKeys(Keys):
    """A search. Keys of the configuration are named by their paths, such as `devices.drafters[laptop].count`."""

    space: dict[str, list[Any]] = Field(default_factory=dict)
    """the values that keys may have, by path"""
    variants: dict[str, Changes] = Field(default_factory=dict)
    """sets of values that belong together, by name; a candidate has one of them"""
    objectives: list[str] = Field(default_factory=lambda: ["throughput_tps", "ttft_p95_ms"])
    """measures, by which candidates are compared"""
    attainment: Share | None = None
    """the least share of requests that keep the bounds of `slo`; null: any"""
    replications: Annotated[int, Field(ge=2)] = 5
    """of each candidate"""
    skip_invalid: bool = False
    """whether combinations that cannot run are left out, instead of being a mistake"""

    def choices(self) -> list[dict[str, Any]]:
        """All combinations, by column, in order. Raises BadSearch if nothing varies, or a key varies twice."""
        if not self.space and not self.variants:
            raise BadSearch("nothing varies: give --vary KEY=VALUE,VALUE or a file with the key space")
        for key, values in self.space.items():
            if not values or any(value == other for value, other in itertools.combinations(values, 2)):
                raise BadSearch(f"space: {key} has {'a value twice' if values else 'no values'}")
            owner = next((name for name, changes in self.variants.items() if key in changes), None)
            if owner is not None:
                raise BadSearch(f"space: {key} varies by itself and in the variant {owner!r}: leave one out")
        varied = ({VARIANT: [*self.variants]} if self.variants else {}) | self.space
        return [dict(zip(varied, each, strict=True)) for each in itertools.product(*varied.values())]

    def changes(self, choice: Mapping[str, Any]) -> Changes:
        """The values of keys that a combination stands for."""
        own = {key: value for key, value in choice.items() if key != VARIANT}
        return (self.variants[choice[VARIANT]] if self.variants else {}) | own


@dataclass(frozen=True)
class SearchCandidate:
    """A configuration that is compared. `choice`: what tells it from the others, by column."""

    number: int  # the first is 1
    choice: Mapping[str, Any]
    configuration: Configuration


def candidates(keys: SearchKeys, file: Path, overrides: Sequence[str] = ()) -> tuple[list[SearchCandidate], list[str]]:
    """The combinations that can run, and a complaint for each of the others.

    `file`: the configuration that is varied. `overrides`: of its keys, as KEY=VALUE.

    Raises BadSearch, and what `read` raises for the file itself.
    """
    read(file, overrides)
    found, complaints = list[SearchCandidate](), list[str]()
    for choice in keys.choices():
        try:
            configuration = varied(file, overrides, keys.changes(choice))
        except BadConfiguration as error:
            complaints.append(f"{label(choice)}: {error}")
        else:
            found.append(SearchCandidate(len(found) + 1, choice, configuration))
    return found, complaints


def varied(file: Path, overrides: Sequence[str], changes: Changes) -> Configuration:
    """A configuration with changes. Raises BadConfiguration."""
    return read(file, [*overrides, *(f"{key}={shown(value)}" for key, value in changes.items())])


def label(choice: Mapping[str, Any]) -> str:
    """A combination in words."""
    return ", ".join(f"{key}={shown(value)}" for key, value in choice.items())


def shown(value: Any) -> str:
    """A value as it is written in a file, on one line."""
    return str(yaml.safe_dump(value, default_flow_style=True, width=10_000)).removesuffix("\n").removesuffix("\n...")


def parse_vary(given: str) -> tuple[str, list[Any]]:
    """A key and its values, of a flag such as `router=jsq,wjsq`. Raises BadSearch."""
    key, equals, text = given.partition("=")
    try:
        values = yaml.load(f"[{text}]", Loader) if equals else []  # noqa: S506
    except yaml.YAMLError:
        values = []
    if not key or not isinstance(values, list) or not values:
        raise BadSearch(f"--vary: {given!r} is no key with its values: write it as in router=jsq,wjsq")
    return key.strip(), values


def read_search(path: Path) -> SearchKeys:
    """The search in a file. Raises BadSearch."""
    return checked(keys_of(path, BadSearch, "give it a key space"), str(path))


def checked(given: dict[str, Any], where: str) -> SearchKeys:
    """Keys with their values as a search. Raises BadSearch, whose message begins with `where`."""
    try:
        return SearchKeys.model_validate(given)
    except ValidationError as error:
        raise BadSearch(f"{where}: {first_mistake(error)}") from None
