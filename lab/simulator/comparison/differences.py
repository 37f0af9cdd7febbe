"""How far runs differ from the first of them, measure by measure. Pure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lab.simulator.results.measures import MEASURES, Measure
from lab.simulator.results.student import Estimate, difference, paired_difference
from lab.simulator.results.summary import Summary

NOISE, UNKNOWN = "noise", "one run"


@dataclass(frozen=True, slots=True)
class Difference:
    """How much more a run has of a measure than the first run."""

    measure: Measure
    base: Estimate
    found: Estimate
    gap: Estimate

    @property
    def relative(self) -> Estimate:
        """The difference as a share of what the first run has; not a number, where that is 0."""
        if not self.base.mean:
            return Estimate(math.nan)
        half = None if self.gap.half is None else self.gap.half / abs(self.base.mean)
        return Estimate(self.gap.mean / abs(self.base.mean), half)

    @property
    def state(self) -> str:
        """`better` or `worse`, or `more` or `less` of a measure that has no better; NOISE, if its interval has 0 in it;
        UNKNOWN, if there is none."""
        if math.isnan(self.gap.mean):
            return ""
        if self.gap.half is None:
            return UNKNOWN
        if not self.gap.mean and not self.gap.half:
            return "equal"
        if not self.gap.clear:
            return NOISE
        more = self.gap.mean > 0
        if not self.measure.better:
            return "more" if more else "less"
        return "better" if more == (self.measure.better == "more") else "worse"


def are_paired(first: Summary, second: Summary) -> bool:
    """Whether the replications of two runs have the same seeds, one by one, and so the same load and chance."""
    seeds = [[each.seed for each in run.replications] for run in (first, second)]
    both = min(map(len, seeds))
    return both > 0 and seeds[0][:both] == seeds[1][:both]


def differences(first: Summary, second: Summary) -> dict[str, Difference]:
    """Of each measure that either run has, by its name: over pairs of replications, if they are paired, else by
    Welch's approximation."""
    paired = are_paired(first, second)
    both = min(len(first.replications), len(second.replications))
    estimates = first.estimates(), second.estimates()
    nothing = Estimate(math.nan)
    found = {}
    for name, measure in MEASURES.items():
        if all(name not in each for each in estimates):
            continue
        values = first.values(name), second.values(name)
        gap = paired_difference(values[0][:both], values[1][:both]) if paired else difference(*values)
        base, other = (each.get(name, nothing) for each in estimates)
        found[name] = Difference(measure, base, other, gap)
    return found


def unlike_keys(runs: Sequence[Summary]) -> dict[str, list[str]]:
    """The keys of the files that are not the same in all runs, with what each has; "" where it has none."""
    flat = [dict(_leaves(run.configuration)) for run in runs]
    names = dict.fromkeys(name for each in flat for name in each)
    rows = {name: [each.get(name, "") for each in flat] for name in names}
    return {name: values for name, values in rows.items() if len({*values}) > 1}


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Values by the paths of their keys; entries of a list by their `name`, or else by their number."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, f"{path}.{key}".lstrip("."))
    elif isinstance(node, list) and node and isinstance(node[0], dict):
        for number, value in enumerate(node):
            yield from _leaves(value, f"{path}[{value.get('name', number)}]")
    else:
        yield path, str(node)
