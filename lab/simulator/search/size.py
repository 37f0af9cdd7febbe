"""What a capacity counts, and which keys of the file follow from a count. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.reading import parts_of
from lab.simulator.configuration.workload import ClosedArrivals, TraceArrivals
from lab.simulator.search.candidates import BadSearch, Changes, shown
from specpair.command_line.given_values import advice

DRAFTERS = "drafters"  # the size of a fleet where no key is named: all kinds together
Wanted = Literal["most", "least"]
_RATES = {("workload", "rate_rps"), ("workload", "speed")}  # keys that are no whole numbers, and grow in steps
_STEPS = 20  # in which the file's value of such a key is reached
_EXAMPLES = "devices.drafters.laptop.count, devices.verifiers.big.count, workload.users or workload.rate_rps"


@dataclass(frozen=True, slots=True)
class Size:
    """What is counted. `name`: a key of the file, or DRAFTERS. `start`: the count that the file has.

    `wanted`: the most that holds, or the least.
    `changes`: the keys of a file with a count. The key itself is the first, if it is one.
    """

    name: str
    start: int
    floor: int
    wanted: Wanted
    changes: Callable[[int], Changes]

    def shown(self, count: int) -> str:
        """A count in words."""
        if self.name == DRAFTERS:
            return f"{count} drafters" if count > 1 else "1 drafter"
        return f"{self.name}={shown(self.changes(count)[self.name])}"


def size_of(configuration: Configuration, key: str | None = None, step: float | None = None) -> Size:
    """What to count: the drafters of all kinds, or else the load where there are none; or a key of the file.

    With the drafters the load grows: each brings the same share of it.
    `step`: what a count of 1 stands for, of a key that is no whole number.

    Raises BadSearch for a key that cannot be counted.
    """
    if key is None and configuration.devices.drafters:
        return _all_drafters(configuration)
    key = key or _load_key(configuration)
    parts = parts_of(key)
    value = _value(configuration, key, parts)
    if tuple(parts) in _RATES:
        return _rate(key, float(value), step)
    if step is not None:
        raise BadSearch(f"--step: {key} is a whole number: its step is 1")
    if isinstance(value, bool) or not isinstance(value, int) or len(parts) < 2:
        raise BadSearch(f"--of: {key} is {shown(value)}, no count: name one such as {_EXAMPLES}")
    if parts[:2] == ["devices", "drafters"] and parts[-1] == "count":
        total, load = _total(configuration), _load(configuration)
        return Size(key, value, 1, "most", lambda count: {key: count} | load((total - value + count) / total))
    wanted: Wanted = "least" if parts[:2] == ["devices", "verifiers"] else "most"
    return Size(key, value, 1, wanted, lambda count: {key: count})


def apportioned(count: int, weights: Sequence[int]) -> list[int]:
    """Shares of a count in the proportions of weights, by Sainte-Laguë: each has at least 1, and no share of a greater
    count is smaller.

    `count`: at least as many as there are weights. `weights`: each at least 1.
    """
    shares = [1] * len(weights)
    for _ in range(count - len(weights)):
        shares[max(range(len(weights)), key=lambda number: weights[number] / (2 * shares[number] + 1))] += 1
    return shares


def _all_drafters(configuration: Configuration) -> Size:
    kinds, load, total = configuration.devices.drafters, _load(configuration), _total(configuration)
    weights = [kind.count for kind in kinds]

    def changes(count: int) -> Changes:
        shares = apportioned(count, weights)
        own = {f"devices.drafters[{kind.name}].count": each for kind, each in zip(kinds, shares, strict=True)}
        return own | load(count / total)

    return Size(DRAFTERS, total, len(kinds), "most", changes)


def _rate(key: str, value: float, step: float | None) -> Size:
    if step is not None and not step > 0:
        raise BadSearch(f"--step: {step:g} is not above 0")
    width = value / _STEPS if step is None else step
    start = max(round(value / width), 1)
    return Size(key, start, 1, "most", lambda count: {key: _rounded(count * width)})


def _load_key(configuration: Configuration) -> str:
    """The key that says how much users ask for."""
    match configuration.workload:
        case ClosedArrivals():
            return "workload.users"
        case TraceArrivals():
            return "workload.speed"
    return "workload.rate_rps"


def _load(configuration: Configuration) -> Callable[[float], Changes]:
    """The load of so many times the devices."""
    key = _load_key(configuration)
    value = getattr(configuration.workload, key.removeprefix("workload."))
    if isinstance(value, int):
        return lambda times: {key: max(round(times * value), 1)}
    return lambda times: {key: _rounded(times * value)}


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _total(configuration: Configuration) -> int:
    return sum(kind.count for kind in configuration.devices.drafters)


def _value(configuration: Configuration, key: str, parts: Sequence[str]) -> Any:
    """What a file has, or its default, at the path of a key. Raises BadSearch if there is no such key."""
    node: Any = configuration.model_dump(mode="json")
    for part in parts:
        if isinstance(node, dict):
            known = {**node}
        elif isinstance(node, list):
            numbers = {str(number): each for number, each in enumerate(node)}
            known = {each["name"]: each for each in node if isinstance(each, dict) and "name" in each} | numbers
        else:
            known = {}
        if part not in known:
            names = [name for name in known if not name.isdecimal()] or [*known]
            raise BadSearch(f"--of: {key}: no key {part!r}{advice(part, names) if names else ''}")
        node = known[part]
    return node
