"""What a search is to do: its file, and the flags in its place."""

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from lab.simulator.configuration.keys import Count, Keys, Share
from lab.simulator.search.space import BadSearch, Changes
from lab.strict_yaml import Loader, complaint


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
    method: Annotated[str, Field(pattern="^(halving|grid)$")] = "halving"
    """`halving`: the worse candidates are dropped early; `grid`: all run `most` replications"""
    first: Count = 3
    """replications of each candidate in the first round of `halving`"""
    most: Count = 12
    """replications of a candidate, at most"""
    budget: Count | None = None
    """replications of all candidates together, at most; null: no limit"""
    skip_invalid: bool = False
    """whether combinations that cannot run are left out, instead of being a mistake"""


def read_search(path: Path) -> SearchKeys:
    """The search in a file. Raises BadSearch."""
    try:
        given = yaml.load(path.read_text(encoding="utf-8-sig"), Loader)  # noqa: S506
    except (OSError, UnicodeDecodeError) as error:
        raise BadSearch(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except yaml.YAMLError as error:
        raise BadSearch(f"{path} is not YAML: {complaint(error)}") from None
    if not isinstance(given, dict):
        raise BadSearch(f"{path} has no keys: give it a key space")
    return checked(given, str(path))


def checked(given: dict[str, Any], where: str) -> SearchKeys:
    """Keys with their values as a search. Raises BadSearch, whose message begins with `where`."""
    try:
        return SearchKeys.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        said = str(first.get("ctx", {}).get("error", first["msg"]))
        raise BadSearch(f"{where}: {f'{key}: ' if key else ''}{said}") from None
