"""Tries counts: replications under the same loads and chance, twice as many where the promise is within chance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lab.simulator.capacity.bisection import Boundary, boundary
from lab.simulator.capacity.promise import Bound, Judgement, estimated, is_sure, judged, keeps
from lab.simulator.capacity.size import Size
from lab.simulator.results.measures import Measure
from lab.simulator.results.report.table import told as estimate_told
from lab.simulator.results.student import Estimate
from lab.simulator.search.evaluation import EvaluateAll
from lab.simulator.search.halving import run
from lab.simulator.search.outcomes import Outcome
from lab.simulator.search.space import BadSearch, Candidate
from specpair.counted import counted

Told = Callable[[str], object]


@dataclass(frozen=True)
class Trial:
    """What came of a count."""

    outcome: Outcome
    bounds: Sequence[Bound]

    @property
    def count(self) -> int:
        return self.outcome.candidate.number

    def estimate(self, measure: Measure) -> Estimate:
        return estimated(measure, self.outcome)

    @property
    def judgements(self) -> list[Judgement]:
        return [judged(bound, self.outcome) for bound in self.bounds]

    @property
    def holds(self) -> bool:
        return keeps(self.judgements)

    @property
    def sure(self) -> bool:
        """Whether that is more than chance."""
        return is_sure(self.judgements)

    @property
    def state(self) -> str:
        return f"{'holds' if self.holds else 'breaks'}{'' if self.sure else ', within chance'}"


@dataclass
class Trials:
    """The counts of a size that were tried.

    `made`: the candidate with a count.
    `first`: replications of a count. `most`: of one that is within chance, at most. See `check_replications`.
    `told`: a line of each count.
    """

    size: Size
    made: Callable[[int], Candidate]
    bounds: Sequence[Bound]
    evaluate: EvaluateAll
    first: int
    most: int
    told: Told = lambda line: None
    by_count: dict[int, Trial] = field(default_factory=dict)

    def holds(self, count: int) -> bool:
        """Try a count. Returns whether it keeps the promise in the mean. Raises what `made` and `evaluate` raise."""
        outcome, wanted = Outcome(self.made(count)), self.first
        while True:
            run([outcome], wanted, self.evaluate)
            trial = self.by_count[count] = Trial(outcome, self.bounds)
            if trial.sure or wanted == self.most:
                break
            wanted = min(2 * wanted, self.most)
        figures = ", ".join(f"{each.bound.measure.words} {_figure(each)}" for each in trial.judgements)
        self.told(f"{self.size.shown(count)}: {trial.state}: {figures}; {counted(wanted, 'replication')}")
        return trial.holds

    @property
    def in_order(self) -> list[Trial]:
        """By count."""
        return [self.by_count[count] for count in sorted(self.by_count)]

    @property
    def boundary(self) -> Boundary:
        """What they say so far."""
        return boundary({count: trial.holds for count, trial in self.by_count.items()}, self.size.wanted)


def check_replications(first: int, most: int) -> None:
    """Raises BadSearch for numbers with which no interval could ever be had."""
    if not 2 <= most or first > most:
        raise BadSearch(f"--first is {first} and --most {most}: --most is at least 2, and --first at most --most")


def _figure(judgement: Judgement) -> str:
    return estimate_told(judgement.bound.measure, judgement.found)
