"""The most of a fleet's load, or the least of its verifiers, that keeps a promise: found by bisection. Pure."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from lab.simulator.results.measures import CONFIDENCE, MEASURES, SHARE, Estimate, RunMeasure
from lab.simulator.results.replications import EvaluateAll
from lab.simulator.search.candidates import BadSearch, SearchCandidate, label, shown
from lab.simulator.search.outcomes import ATTAINMENT, CandidateOutcome, cells_of, run
from lab.simulator.search.size import Size
from specpair.command_line.given_values import advice
from specpair.command_line.table import Table, harmless

_BOUND = re.compile(r"\s*(\w+)\s*(<=|>=)\s*(\S+)\s*")
_SHOWN = ("throughput_tps", "ttft_p95_ms", "tpot_p95_ms", "utilisation")


@dataclass(frozen=True, slots=True)
class Bound:
    """A promise: a measure is `limit` at most, or at least."""

    measure: RunMeasure
    limit: float
    at_most: bool

    @classmethod
    def attainment(cls, share: float) -> "Bound":
        """At least a share of the requests is within `slo`. Raises BadSearch for what is no share."""
        if not 0 < share <= 1:
            raise BadSearch(f"--attainment: {share:g} is no share above 0 and up to 1, such as 0.95")
        return cls(MEASURES[ATTAINMENT], share, at_most=False)

    @classmethod
    def parse(cls, given: str) -> "Bound":
        """A bound as it is written in a flag, such as `ttft_p95_ms<=1500`. Raises BadSearch."""
        groups = _BOUND.fullmatch(given)
        try:
            limit = float(groups[3]) if groups else math.nan
        except ValueError:
            limit = math.nan
        if groups is None or not math.isfinite(limit):
            raise BadSearch(f"--bound: {given!r} is no bound of a measure: write it as in 'ttft_p95_ms<=1500'")
        if groups[1] not in MEASURES:
            raise BadSearch(f"--bound: no measure {groups[1]!r}{advice(groups[1], MEASURES)}")
        return cls(MEASURES[groups[1]], limit, at_most=groups[2] == "<=")

    @property
    def asked(self) -> str:
        """`at most 1,500 ms`"""
        return f"at {'most' if self.at_most else 'least'} {_with_unit(self.measure, self.measure.shown(self.limit))}"

    def keeps(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit


@dataclass(frozen=True)
class Trial:
    """What came of a count."""

    outcome: CandidateOutcome
    bounds: tuple[Bound, ...]

    @property
    def count(self) -> int:
        return self.outcome.candidate.number

    def estimate(self, measure: RunMeasure) -> Estimate:
        """The mean of replications. Where all requests attain the promise, or none does, replications have no spread:
        the interval is that of a share of so many requests then (Clopper and Pearson, Biometrika 26, 1934)."""
        found = self.outcome.estimate(measure.name)
        if measure.name != ATTAINMENT or found.mean not in (0.0, 1.0):
            return found
        ended = sum(self.outcome.values("whole"))
        return replace(found, half=1.0 - ((1.0 - CONFIDENCE) / 2) ** (1.0 / ended) if ended else None)

    @property
    def holds(self) -> bool:
        """Whether all bounds are kept in the mean; one without a value is not."""
        return all(each.keeps(self.estimate(each.measure).mean) for each in self.bounds)

    @property
    def state(self) -> str:
        """`holds` or `breaks`; `within chance`, where an interval covers what is asked."""
        ends = [(each, self.estimate(each.measure)) for each in self.bounds]
        whole = [
            found.low is not None
            and found.high is not None
            and each.keeps(found.low) == each.keeps(found.high) == each.keeps(found.mean)
            for each, found in ends
        ]
        broken = [sure for (each, found), sure in zip(ends, whole, strict=True) if not each.keeps(found.mean)]
        sure = any(broken) if broken else all(whole)
        return f"{'breaks' if broken else 'holds'}{'' if sure else ', within chance'}"

    @property
    def figures(self) -> str:
        """What it has of each bound."""
        told = ((each, each.measure.told(self.estimate(each.measure))) for each in self.bounds)
        return "; ".join(
            f"{each.measure.words} {_with_unit(each.measure, text)}, {each.asked} is asked" for each, text in told
        )


@dataclass
class Capacity:
    """The counts of a size that were tried.

    `made`: the candidate with a count.
    `up_to`: the greatest count.
    `precision`: it ends where a count that holds and one that breaks differ by so large a share of the smaller one, or
        by 1.
    `told`: takes a line for each count.
    """

    size: Size
    bounds: tuple[Bound, ...]
    made: Callable[[int], SearchCandidate]
    evaluate: EvaluateAll
    up_to: int
    replications: int
    precision: float = 0.0
    told: Callable[[str], object] = lambda line: None
    trials: dict[int, Trial] = field(default_factory=dict)  # by count

    def find(self, start: int) -> None:
        """Try counts until the boundary is known: doubled or halved from `start` on until the promise breaks or holds,
        then those in the middle."""
        inside: int | None = None
        outside: int | None = None
        count = start
        while inside is None or outside is None:
            if holds := self.holds(count):
                inside = count
            else:
                outside = count
            grows = holds is (self.size.wanted == "most")
            following = min(2 * count, self.up_to) if grows else max(count // 2, self.size.floor)
            if following == count:
                return
            count = following
        while abs(outside - inside) > max(1.0, self.precision * min(inside, outside)):
            middle = (inside + outside) // 2
            if self.holds(middle):
                inside = middle
            else:
                outside = middle

    def holds(self, count: int) -> bool:
        """Try a count. Returns whether it keeps the promise in the mean."""
        outcome = CandidateOutcome(self.made(count))
        run([outcome], self.replications, self.evaluate)
        trial = self.trials[count] = Trial(outcome, self.bounds)
        self.told(f"{self.size.shown(count)}: {trial.state}: {trial.figures}")
        return trial.holds

    @property
    def in_order(self) -> list[Trial]:
        """By count."""
        return [self.trials[count] for count in sorted(self.trials)]

    # The answer.

    def sentences(self, ended: bool = True) -> Iterator[str]:
        """How much holds, and what breaks beyond it. `ended`: False if it was interrupted."""
        sign = 1 if self.size.wanted == "most" else -1  # so that greater is harder
        held = [each for each in self.in_order if each.holds]
        inside = max(held, key=lambda each: sign * each.count, default=None)
        broken = [each for each in self.in_order if not each.holds]
        beyond = [each for each in broken if inside is None or sign * (each.count - inside.count) > 0]
        outside = min(beyond, key=lambda each: sign * each.count, default=None)
        if inside is not None:
            others = {key: value for key, value in self._choice(inside).items() if key != self.size.name}
            which = f"{self.size.shown(inside.count)}{f' ({label(others)})' if others else ''}"
            yield f"The {self.size.wanted} that keeps the promise: {which}: {self._told(inside)}."
        else:
            yield "No count that was tried keeps the promise."
        if outside is not None:
            yield f"What breaks it: {self.size.shown(outside.count)}: {self._told(outside)}."
        elif self.size.wanted == "least":
            yield f"{self.size.shown(self.size.floor)} is the least that there can be."
        elif ended:
            yield f"Nothing breaks up to {self.size.shown(self.up_to)}, where it ends: raise --up-to."
        if not ended:
            yield "It ended early: the boundary may be far from what was tried."

    def _told(self, trial: Trial) -> str:
        doubt = ". That is within chance: give more --replications" if "chance" in trial.state else ""
        return f"{trial.figures}{doubt}"

    def _choice(self, trial: Trial) -> dict[str, Any]:
        return {self.size.name: trial.count, **trial.outcome.candidate.choice}

    @property
    def measures(self) -> list[RunMeasure]:
        """Those of the promise and some others, as far as they have values."""
        names = dict.fromkeys([*(each.measure.name for each in self.bounds), *_SHOWN])
        return [
            MEASURES[name]
            for name in names
            if any(math.isfinite(each.estimate(MEASURES[name]).mean) for each in self.in_order)
        ]

    def table(self) -> Table:
        """A row for each count, with the keys that follow from it, measures with their intervals, and its state."""
        measures = self.measures
        rows = (
            (
                *map(shown, self._choice(each).values()),
                *(measure.told(each.estimate(measure)) for measure in measures),
                each.state,
            )
            for each in self.in_order
        )
        return Table((*self._choice(self.in_order[0]), *(each.heading for each in measures), "promise"), tuple(rows))

    def rows(self) -> Iterator[list[Any]]:
        """For a CSV file: the headings, then a row for each count with all measures."""
        ends = [f"{name}{end}" for name in MEASURES for end in ("", "_low", "_high")]
        yield [*self._choice(self.in_order[0]), "replications", "promise", *ends]
        for each in self.in_order:
            own = [harmless(shown(value)) for value in self._choice(each).values()]
            cells = cells_of([each.estimate(measure) for measure in MEASURES.values()])
            yield [*own, len(each.outcome.replications), each.state, *cells]


def _with_unit(measure: RunMeasure, text: str) -> str:
    return text if measure.unit in ("", SHARE) else f"{text} {measure.unit}"
