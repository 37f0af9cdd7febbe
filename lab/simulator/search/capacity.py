"""Finds by bisection the greatest load, or the fewest verifiers, with which a fleet keeps its objective. Pure."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.reading import parts_of
from lab.simulator.configuration.workload import ClosedArrivals, TraceArrivals
from lab.simulator.results.measures import CONFIDENCE, MEASURES, Estimate, RunMeasure
from lab.simulator.results.replications import EvaluateAll
from lab.simulator.search.comparison import ATTAINMENT, BadSearch, Changes, SearchCandidate, label, run, shown
from specpair.command_line.setting_values import advice
from specpair.command_line.table import Table

_SHOWN = [MEASURES[name] for name in (ATTAINMENT, "throughput_tps", "ttft_p95_ms", "tpot_p95_ms", "utilisation")]


@dataclass(frozen=True)
class Trial:
    """The result for a count. `asked`: the required share of requests within `slo`, above 0."""

    candidate: SearchCandidate  # its number is the count
    asked: float

    def estimate(self, measure: RunMeasure) -> Estimate:
        """The mean of replications. Where all requests attain the promise, or none does, replications have no spread:
        the interval is that of a share of so many requests then (Clopper and Pearson, Biometrika 26, 1934)."""
        found = self.candidate.estimate(measure.name)
        if measure.name != ATTAINMENT or found.mean not in (0.0, 1.0):
            return found
        ended = sum(self.candidate.values("whole"))
        return replace(found, half=1.0 - ((1.0 - CONFIDENCE) / 2) ** (1.0 / ended) if ended else None)

    @property
    def holds(self) -> bool:
        """Whether the objective is kept in the mean; without a value, it is not."""
        return self.estimate(MEASURES[ATTAINMENT]).mean >= self.asked

    @property
    def state(self) -> str:
        """`holds` or `breaks`; `within chance` if the interval covers the required share."""
        found = self.estimate(MEASURES[ATTAINMENT])
        surely = all(end is not None and (end >= self.asked) is self.holds for end in (found.low, found.high))
        return f"{'holds' if self.holds else 'breaks'}{'' if surely else ', within chance'}"

    @property
    def figures(self) -> str:
        """The measured attainment, as text."""
        measure = MEASURES[ATTAINMENT]
        told, asked = measure.text(self.estimate(measure)), measure.shown(self.asked)
        return f"{measure.words} {told}, at least {asked} is asked"


@dataclass
class Capacity:
    """The counts of a size that were tried.

    `asked`: as for `Trial`.
    `made`: the candidate with a count.
    `up_to`: the greatest count.
    `precision`: it ends where a count that holds and one that breaks differ by so large a share of the smaller one, or
        by 1.
    `told`: takes a line for each count.
    """

    size: "Size"
    asked: float
    made: Callable[[int], SearchCandidate]
    evaluate: EvaluateAll
    up_to: int
    replications: int
    precision: float = 0.0
    told: Callable[[str], object] = lambda line: None
    trials: dict[int, Trial] = field(default_factory=dict)  # by count

    def find(self, start: int, *, near: bool = False) -> None:
        """Try counts until the boundary is known: doubled or halved from `start` on until the promise breaks or holds,
        then those in the middle. `near`: the boundary is likely near: the first steps are small."""
        inside: int | None = None
        outside: int | None = None
        count, step = start, max(round(self.precision * start), 1) if near else start
        while inside is None or outside is None:
            if holds := self.holds(count):
                inside = count
            else:
                outside = count
            grows = holds is (self.size.wanted == "most")
            following = min(count + step, self.up_to) if grows else max(count - step, count // 2, self.size.floor)
            if following == count:
                return
            count, step = following, 2 * step
        while abs(outside - inside) > max(1.0, self.precision * min(inside, outside)):
            middle = (inside + outside) // 2
            if self.holds(middle):
                inside = middle
            else:
                outside = middle

    def holds(self, count: int) -> bool:
        """Try a count. Returns whether it keeps the objective in the mean."""
        candidate = self.made(count)
        run([candidate], self.replications, self.evaluate)
        trial = self.trials[count] = Trial(candidate, self.asked)
        self.told(f"{self.size.shown(count)}: {trial.state}: {trial.figures}")
        return trial.holds

    # The answer.

    @property
    def boundary(self) -> tuple[int | None, int | None]:
        """The farthest count that holds, and the next one that breaks; None: there is none."""
        by_ease = sorted(self.trials, reverse=self.size.wanted == "least")  # counts, the easiest first
        inside = max((at for at, count in enumerate(by_ease) if self.trials[count].holds), default=-1)
        beyond = by_ease[inside + 1 :]
        return by_ease[inside] if inside >= 0 else None, beyond[0] if beyond else None

    def sentences(self, ended: bool = True) -> Iterator[str]:
        """The result in sentences: the counts that hold and break. `ended`: False if the search was interrupted."""
        size, (inside, outside) = self.size, self.boundary
        if inside is not None:
            trial = self.trials[inside]
            others = {key: value for key, value in trial.candidate.choice.items() if key != size.name}
            which = f"{size.shown(inside)}{f' ({label(others)})' if others else ''}"
            yield f"The {size.wanted} that keeps the promise: {which}: {_line(trial)}."
        else:
            yield "No count that was tried keeps the promise."
        if outside is not None:
            yield f"What breaks it: {size.shown(outside)}: {_line(self.trials[outside])}."
        elif size.wanted == "least":
            yield f"{size.shown(size.floor)} is the least that there can be."
        elif ended:
            yield f"Nothing breaks up to {size.shown(self.up_to)}, where it ends: raise --start."
        if not ended:
            yield "It ended early: the boundary may be far from what was tried."

    def table(self) -> Table:
        """A row for each count, with the keys that follow from it, measures with their intervals, and its state."""
        trials = [self.trials[count] for count in sorted(self.trials)]
        choices = [{self.size.name: each.candidate.number, **each.candidate.choice} for each in trials]
        measures = [each for each in _SHOWN if any(math.isfinite(of.estimate(each).mean) for of in trials)]
        rows = (
            (*map(shown, choice.values()), *(measure.text(each.estimate(measure)) for measure in measures), each.state)
            for choice, each in zip(choices, trials, strict=True)
        )
        return Table((*choices[0], *(each.heading for each in measures), "promise"), tuple(rows))


def boundaries(several: Sequence[tuple[Mapping[str, Any], Capacity]]) -> Table:
    """A row for each combination of values, by column: its boundary, and the measures of what holds."""
    rows = []
    for choice, capacity in several:
        inside, outside = capacity.boundary
        measured = [""] * len(_SHOWN)
        if inside is not None:
            measured = [each.text(capacity.trials[inside].estimate(each)) for each in _SHOWN]
        counts = ("" if count is None else str(count) for count in (inside, outside))
        rows.append((*map(shown, choice.values()), *counts, *measured))
    first = several[0][1].size
    return Table(
        (*several[0][0], f"{first.name}: {first.wanted}", "breaks at", *(each.heading for each in _SHOWN)), tuple(rows)
    )


def _line(trial: Trial) -> str:
    doubt = ". That is within chance: give more --replications" if "chance" in trial.state else ""
    return f"{trial.figures}{doubt}"


# What is counted, and which keys of the file follow from a count.

DRAFTERS = "drafters"  # the size of a fleet where no key is named: all kinds together
Wanted = Literal["most", "least"]
_RATES = {("workload", "rate_rps"), ("workload", "speed")}  # keys that are no whole numbers, and grow in steps
_STEPS = 20  # in which the file's value of such a key is reached
_EXAMPLES = "devices.drafters.laptop.count, devices.verifiers.big.count, workload.users or workload.rate_rps"


@dataclass(frozen=True, slots=True)
class Size:
    """The counted quantity. `name`: a key of the file, or DRAFTERS. `start`: the count in the file.

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


def size_of(configuration: Configuration, key: str | None = None) -> Size:
    """The quantity to count: a key of the file, or the drafters of all kinds; without drafters, the load.

    With the drafters the load grows: each brings the same share of it.

    Raises BadSearch for a key that cannot be counted.
    """
    kinds = configuration.devices.drafters
    total = sum(kind.count for kind in kinds)
    if key is None and kinds:

        def changes(count: int) -> Changes:
            shares = apportioned(count, [kind.count for kind in kinds])
            own = {f"devices.drafters[{kind.name}].count": each for kind, each in zip(kinds, shares, strict=True)}
            return own | _load(configuration, count / total)

        return Size(DRAFTERS, total, len(kinds), "most", changes)
    key = key or _load_key(configuration)
    parts = parts_of(key)
    value = _value(configuration, key, parts)
    if tuple(parts) in _RATES:
        return Size(key, _STEPS, 1, "most", lambda count: {key: _rounded(count * float(value) / _STEPS)})
    if isinstance(value, bool) or not isinstance(value, int) or len(parts) < 2:
        raise BadSearch(f"--of: {key} is {shown(value)}, no count: name one such as {_EXAMPLES}")
    if parts[:2] == ["devices", "drafters"] and parts[-1] == "count":
        return Size(
            key, value, 1, "most", lambda count: {key: count} | _load(configuration, (total - value + count) / total)
        )
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


def _load_key(configuration: Configuration) -> str:
    """The key of the users' load."""
    match configuration.workload:
        case ClosedArrivals():
            return "workload.users"
        case TraceArrivals():
            return "workload.speed"
    return "workload.rate_rps"


def _load(configuration: Configuration, times: float) -> Changes:
    """The load for a multiple of the devices."""
    key = _load_key(configuration)
    value = getattr(configuration.workload, key.removeprefix("workload."))
    return {key: max(round(times * value), 1) if isinstance(value, int) else _rounded(times * value)}


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _value(configuration: Configuration, key: str, parts: Sequence[str]) -> Any:
    """The value of a file, or its default, at the path of a key. Raises BadSearch if there is no such key."""
    node: Any = configuration.model_dump(mode="json")
    for part in parts:
        known: dict[str, Any] = node if isinstance(node, dict) else {}
        if isinstance(node, list):
            known = {str(number): each for number, each in enumerate(node)}
            known |= {each["name"]: each for each in node if isinstance(each, dict) and "name" in each}
        if part not in known:
            names = [name for name in known if not name.isdecimal()] or [*known]
            raise BadSearch(f"--of: {key}: no key {part!r}{advice(part, names) if names else ''}")
        node = known[part]
    return node
