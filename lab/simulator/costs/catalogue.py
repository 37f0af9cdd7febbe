"""The catalogue of named devices and models.

`devices.toml` and `models.toml` hold one table for each, with the source of each value. A user's own file has the same
form; there a value may stand alone, without its source.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from lab.simulator.costs.cost import BadCost
from lab.simulator.costs.roofline import Device, Model, Roofline
from lab.user_files import first_mistake, text_of
from specpair.command_line.setting_values import advice

Sizes = TypeVar("Sizes", Device, Model)

_FOLDER = Path(__file__).parent
_SOURCED = {"value", "kind", "source"}  # of a value with where it is from
_KINDS = ("measured", "published", "derived")
_BESIDE = ("title", "source")  # keys of a table that are no sizes


@dataclass(frozen=True, slots=True)
class Hardware:
    """One device, or several equal devices that share a model's tensors."""

    device: Device
    count: int


def hardware(name: str, *own: Path) -> Hardware:
    """The device or the group of devices of this name, the user's files first. Raises BadCost."""
    entry, sources, path = _entry(name, [*own, _FOLDER / "devices.toml"], "device")
    if "of" not in entry:
        return Hardware(_sizes(Device, entry, sources, f"{path}: {name}"), 1)
    count = entry.get("count", 1)
    if entry.keys() - {"title", "of", "count"} or type(count) is not int or count < 1:
        raise BadCost(f"{path}: {name}: a group of devices has a title, `of` and `count`, a whole number above 0")
    return Hardware(hardware(str(entry["of"]), *own).device, count)


def model(name: str, *own: Path) -> Model:
    """The model of this name, the user's files first. Raises BadCost."""
    entry, sources, path = _entry(name, [*own, _FOLDER / "models.toml"], "model")
    return _sizes(Model, entry, sources, f"{path}: {name}")


def roofline(
    model_name: str,
    hardware_name: str,
    *own: Path,
    weights: str = "bf16",
    cache: str = "bf16",
    layers: int | None = None,
) -> Roofline:
    """The cost of a model on a device or a group of devices, both by name. `layers`: in place of the model's own.
    Raises BadCost."""
    found, sizes = hardware(hardware_name, *own), model(model_name, *own)
    if layers is not None:
        sizes = sizes.model_copy(update={"layers": layers})
    return Roofline(sizes, found.device, weights=weights, cache=cache, degree=found.count)


def names(kind: Literal["devices", "models"]) -> list[str]:
    """The names of the catalogue's devices or models."""
    return [name for name in _read(_FOLDER / f"{kind}.toml") if name != "sources"]


@cache
def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text_of(path, BadCost))
    except tomllib.TOMLDecodeError as error:
        raise BadCost(f"{path} is no catalogue: {error}") from None


def _entry(name: str, files: list[Path], what: str) -> tuple[Mapping[str, Any], Mapping[str, str], Path]:
    """The table of this name, the sources of its file, and the file."""
    for path in files:
        read = _read(path)
        if name in read and name != "sources":
            if not isinstance(read[name], dict):
                raise BadCost(f"{path}: {name} is no table: write [{name}]")
            return read[name], read.get("sources", {}), path
    known = [each for path in files for each in _read(path) if each != "sources"]
    raise BadCost(f"unknown {what} {name!r}{advice(name, known)}")


def _sizes(of: type[Sizes], entry: Mapping[str, Any], sources: Mapping[str, str], where: str) -> Sizes:
    """The sizes in a table."""

    def value(key: str, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        if set(given) != _SOURCED or given["kind"] not in _KINDS:
            raise BadCost(f"{where}: {key} must be a number, or have value, source, and a kind: {', '.join(_KINDS)}")
        if given["source"] not in sources:
            raise BadCost(f"{where}: {key}: unknown source {given['source']!r}{advice(given['source'], sources)}")
        return given["value"]

    given = {key: each for key, each in entry.items() if key not in _BESIDE}
    peaks = given.pop("flops", None)
    values = {key: value(key, each) for key, each in given.items()}
    if peaks is not None:
        if not isinstance(peaks, dict):
            raise BadCost(f"{where}: flops must be given by its numbers, as in flops.bf16 = 1e12")
        values["flops"] = {key: value(f"flops.{key}", each) for key, each in peaks.items()}
    try:
        return of.model_validate(values)
    except ValidationError as error:
        raise BadCost(f"{where}: {first_mistake(error)}") from None
