"""The candidates of a search: all combinations of the values that keys may have. Pure but for files that keys name."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.reading import BadConfiguration, read
from lab.simulator.costs.cost import BadCost
from lab.simulator.running.setting import setting_of
from lab.strict_yaml import Loader

VARIANT = "variant"  # the name of the choice between sets of values

Changes = dict[str, Any]  # values by the paths of their keys


class BadSearch(ValueError):
    """A search cannot be made. The message says why, and what to do."""


@dataclass(frozen=True)
class Space:
    """What varies. `values`: of a key, by its path. `variants`: sets of values that belong together, by name."""

    values: Mapping[str, Sequence[Any]]
    variants: Mapping[str, Changes]

    def __post_init__(self) -> None:
        """Raises BadSearch if nothing varies, and for a key that varies twice."""
        if not self.values and not self.variants:
            raise BadSearch("nothing varies: give --vary KEY=VALUE,VALUE or a file with the key space")
        for key, values in self.values.items():
            if not values:
                raise BadSearch(f"space: {key} has no values")
            if any(value == other for value, other in itertools.combinations(values, 2)):
                raise BadSearch(f"space: {key} has a value twice")
            owner = next((name for name, changes in self.variants.items() if key in changes), None)
            if owner is not None:
                raise BadSearch(f"space: {key} varies by itself and in the variant {owner!r}: leave one out")

    @property
    def columns(self) -> list[str]:
        """What tells candidates apart."""
        return [*([VARIANT] if self.variants else []), *self.values]

    def choices(self) -> list[dict[str, Any]]:
        """All combinations, by column, in order."""
        names = [[*self.variants]] if self.variants else []
        return [dict(zip(self.columns, each, strict=True)) for each in itertools.product(*names, *self.values.values())]

    def changes(self, choice: Mapping[str, Any]) -> Changes:
        """The values of keys that a combination stands for."""
        own = {key: value for key, value in choice.items() if key != VARIANT}
        return (dict(self.variants[choice[VARIANT]]) if self.variants else {}) | own


@dataclass(frozen=True)
class Candidate:
    """A configuration that is compared. `choice`: what tells it from the others, by column."""

    number: int  # the first is 1
    choice: Mapping[str, Any]
    configuration: Configuration

    @property
    def label(self) -> str:
        return label(self.choice)


def candidates(space: Space, file: Path, overrides: Sequence[str] = ()) -> tuple[list[Candidate], list[str]]:
    """The combinations that can run, and a complaint for each of the others.

    `file`: the configuration that is varied. `overrides`: of its keys, as KEY=VALUE.

    Raises what `read` raises for the file itself.
    """
    read(file, overrides)
    found, complaints = list[Candidate](), list[str]()
    for choice in space.choices():
        try:
            configuration = read(file, [*overrides, *written(space.changes(choice))])
            setting_of(configuration, seed=0)
        except (BadConfiguration, BadCost) as error:
            complaints.append(f"{label(choice)}: {error}")
        else:
            found.append(Candidate(len(found) + 1, choice, configuration))
    return found, complaints


def written(changes: Changes) -> list[str]:
    """Values by paths, as KEY=VALUE."""
    return [f"{key}={shown(value)}" for key, value in changes.items()]


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
