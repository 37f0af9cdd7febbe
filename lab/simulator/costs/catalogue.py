"""The devices and models that are known by name, each value with where it is from.

`devices.toml` and `models.toml` hold one table for each. A user's own file has the same form; there a value may stand
alone, without its source.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from lab.simulator.costs.cost import BadCost
from lab.simulator.costs.dimensions import Device, Model
from lab.simulator.costs.roofline import Roofline
from specpair.command_line.suggestion import advice

Kind = Literal["measured", "published", "derived", "stated"]
Sizes = TypeVar("Sizes", Device, Model)

_FOLDER = Path(__file__).parent
_VALUE = {"value", "kind", "source"}


class Provenance(NamedTuple):
    """Where a value is from.

    `measured`: somebody measured it; `published`: the maker says so; `derived`: computed from other values, as the
    source tells; `stated`: a file of the user's gives no source.
    """

    kind: Kind
    source: str


@dataclass(frozen=True, slots=True)
class Hardware:
    """One device, or several of one kind among which a model's tensors are split."""

    title: str
    device: Device
    count: int
    provenance: Mapping[str, Provenance]  # by the names of the device's fields; of the peaks `flops.bf16` and so on


@dataclass(frozen=True, slots=True)
class Known:
    """A model of the catalogue."""

    title: str
    model: Model
    provenance: Mapping[str, Provenance]


def hardware(name: str, *own: Path) -> Hardware:
    """The device or the group of devices of this name, the user's files first. Raises BadCost."""
    files = [*own, _FOLDER / "devices.toml"]
    entry, sources, path = _entry(name, files, "device")
    title, count = str(entry.pop("title", name)), 1
    if "of" in entry:
        made_of, count = str(entry.pop("of")), entry.pop("count", 1)
        if entry or type(count) is not int or count < 1:
            raise BadCost(f"{path}: {name}: a group of devices has a title, `of` and `count`, a whole number above 0")
        one = hardware(made_of, *own)
        return Hardware(title, one.device, count, one.provenance)
    device, provenance = _sizes(Device, entry, sources, f"{path}: {name}")
    return Hardware(title, device, count, provenance)


def model(name: str, *own: Path) -> Known:
    """The model of this name, the user's files first. Raises BadCost."""
    entry, sources, path = _entry(name, [*own, _FOLDER / "models.toml"], "model")
    title = str(entry.pop("title", name))
    sizes, provenance = _sizes(Model, entry, sources, f"{path}: {name}")
    return Known(title, sizes, provenance)


def roofline(model_name: str, hardware_name: str, *own: Path, weights: str = "bf16", cache: str = "bf16") -> Roofline:
    """The cost of a model on a device or a group of devices, both by name. Raises BadCost."""
    found = hardware(hardware_name, *own)
    return Roofline(model(model_name, *own).model, found.device, weights=weights, cache=cache, degree=found.count)


def names(kind: Literal["devices", "models"]) -> list[str]:
    """The names of the catalogue's devices or models."""
    return [name for name in _read(_FOLDER / f"{kind}.toml") if name != "sources"]


@cache
def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadCost(f"{path} is no catalogue: {error}") from None


def _entry(name: str, files: list[Path], what: str) -> tuple[dict[str, Any], Mapping[str, str], Path]:
    """A copy of the table of this name, the sources of its file, and the file."""
    for path in files:
        read = _read(path)
        if name in read and name != "sources":
            if not isinstance(read[name], dict):
                raise BadCost(f"{path}: {name} is no table: write [{name}]")
            return dict(read[name]), read.get("sources", {}), path
    known = [each for path in files for each in _read(path) if each != "sources"]
    raise BadCost(f"unknown {what} {name!r}{advice(name, known)}")


def _sizes(
    of: type[Sizes], entry: Mapping[str, Any], sources: Mapping[str, str], where: str
) -> tuple[Sizes, dict[str, Provenance]]:
    """The sizes that a table gives, and where each is from. `source` of the table counts for values without one."""
    peaks = entry.get("flops", {})
    if not isinstance(peaks, dict):
        raise BadCost(f"{where}: flops must be given by its numbers, as in flops.bf16 = 1e12")
    given: dict[str, Any] = {key: value for key, value in entry.items() if key not in ("source", "flops")}
    given |= {f"flops.{key}": value for key, value in peaks.items()}
    values: dict[str, Any] = {}
    provenance: dict[str, Provenance] = {}
    for key, each in given.items():
        value, kind, source = _told(each, f"{where}: {key}", entry.get("source"))
        if source is not None and source not in sources:
            raise BadCost(f"{where}: {key}: unknown source {source!r}{advice(source, sources)}")
        provenance[key] = Provenance(kind, "" if source is None else sources[source])
        group, _, inner = key.partition(".")
        if inner:
            values.setdefault(group, {})[inner] = value
        else:
            values[key] = value
    try:
        return of.model_validate(values), provenance
    except ValidationError as error:
        raise BadCost(f"{where}: {_mistake(error, of)}") from None


def _told(given: Any, where: str, everywhere: str | None) -> tuple[Any, Kind, str | None]:
    """The value, its kind and the name of its source: of `{value, kind, source}`, or of a value that stands alone."""
    if not isinstance(given, dict):
        return given, "stated" if everywhere is None else "published", everywhere
    if set(given) != _VALUE or given["kind"] not in get_args(Kind)[:3]:
        raise BadCost(f"{where} must be a number, or have value, source, and a kind: measured, published or derived")
    return given["value"], given["kind"], given["source"]


def _mistake(error: ValidationError, of: type[BaseModel]) -> str:
    mistakes = error.errors()
    first = next((each for each in mistakes if each["type"] == "extra_forbidden"), mistakes[0])
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"unknown key {name!r}{advice(name, of.model_fields)}"
    return f"{name}: {first['msg']}" if name else first["msg"]
