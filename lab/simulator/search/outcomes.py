"""What came of candidates, and which are worth having: those that no other dominates. Pure.

A candidate dominates another if it is better in one objective and not worse in any. One within the service levels
dominates one that is not.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from lab.simulator.results.measures import MEASURES, Estimate, RunMeasure, estimate
from lab.simulator.results.replications import EvaluateAll, Values
from lab.simulator.search.candidates import BadSearch, SearchCandidate, shown
from specpair.command_line.given_values import advice
from specpair.command_line.table import Table, harmless

ATTAINMENT = "slo_attainment"


@dataclass(frozen=True)
class Goals:
    """What a search looks for. `attainment`: the least share of requests within `slo`, 0 to 1; None: any."""

    objectives: Sequence[RunMeasure]
    attainment: float | None = None

    @classmethod
    def of(cls, names: Sequence[str], attainment: float | None = None) -> "Goals":
        """Raises BadSearch for a name of no measure, or of one that is neither better more nor better less."""
        if not names:
            raise BadSearch("objectives: name at least one measure")
        aims = [each.name for each in MEASURES.values() if each.better]
        for name in names:
            if name not in MEASURES:
                raise BadSearch(f"objectives: no measure {name!r}{advice(name, aims)}")
            if name not in aims:
                raise BadSearch(f"objectives: {name} is neither better if it is more nor if it is less")
        if len(set(names)) != len(names):
            raise BadSearch("objectives: a measure is named twice")
        return cls([MEASURES[name] for name in names], attainment)

    @property
    def measures(self) -> list[RunMeasure]:
        """The objectives, and the attainment where a share of it is wanted."""
        own = [*self.objectives]
        return own if self.attainment is None or MEASURES[ATTAINMENT] in own else [*own, MEASURES[ATTAINMENT]]


@dataclass
class CandidateOutcome:
    """The replications of a candidate so far."""

    candidate: SearchCandidate
    replications: list[Values] = field(default_factory=list)

    def values(self, name: str) -> list[float]:
        """Of a measure, by replication; not a number: it has none."""
        return [each[name] for each in self.replications]

    def estimate(self, name: str) -> Estimate:
        return MEASURES[name].estimate(self.values(name))


def run(outcomes: Sequence[CandidateOutcome], replications: int, evaluate: EvaluateAll) -> None:
    """Let candidates have so many replications.

    All have one before any has the next, so if it ends early, what came of them by then can be compared.
    """
    asked = [(each, number) for number in range(replications) for each in outcomes]
    values = evaluate([(each.candidate.configuration, number) for each, number in asked])
    for (outcome, _), each in zip(asked, values, strict=True):
        outcome.replications.append(each)


def is_within(outcome: CandidateOutcome, goals: Goals) -> bool:
    """Whether a candidate has values in all replications, and keeps the service levels in the mean."""
    has_values = not any(math.isnan(value) for each in goals.measures for value in outcome.values(each.name))
    return has_values and (goals.attainment is None or outcome.estimate(ATTAINMENT).mean >= goals.attainment)


def dominates(first: CandidateOutcome, second: CandidateOutcome, goals: Goals) -> bool:
    """Whether the first is better than the second in the mean."""
    within = [is_within(each, goals) for each in (first, second)]
    if within != [True, True]:
        return within[0] and not within[1]
    gains = [_gain(first, second, each).mean for each in goals.objectives]
    return min(gains) >= 0 and max(gains) > 0


def surely_dominates(first: CandidateOutcome, second: CandidateOutcome, goals: Goals) -> bool:
    """Whether the first is better than the second by more than chance: in each objective the interval of the paired
    difference (95 %, Student's t) has nothing in which the second is better."""
    lows = [_gain(first, second, each).low for each in goals.objectives]
    return dominates(first, second, goals) and all(low is not None and low >= 0 for low in lows)


def gap(first: CandidateOutcome, second: CandidateOutcome, objective: RunMeasure) -> Estimate:
    """How much more the second has of an objective, over the replications that both have: what the two have in common
    by the same load drops out."""
    pairs = zip(first.values(objective.name), second.values(objective.name), strict=False)
    return estimate([other - one for one, other in pairs])


def _gain(first: CandidateOutcome, second: CandidateOutcome, objective: RunMeasure) -> Estimate:
    """How much better the first is in an objective."""
    return gap(second, first, objective) if objective.better == "more" else gap(first, second, objective)


def state(outcome: CandidateOutcome, outcomes: Sequence[CandidateOutcome], goals: Goals) -> str:
    """What a candidate is worth, in words. Another one `is` better by more than chance, or `may be`, by the means."""
    if not is_within(outcome, goals):
        return "misses the SLO" if goals.attainment is not None else "no values"
    better = [each for each in outcomes if dominates(each, outcome, goals)]
    if not better:
        return "Pareto"
    sure = next((each for each in better if surely_dominates(each, outcome, goals)), None)
    return f"{(sure or better[0]).candidate.number} {'is' if sure else 'may be'} better"


def ordered(outcomes: Sequence[CandidateOutcome], goals: Goals) -> list[CandidateOutcome]:
    """By how many others dominate each, then by the first objective; those beyond the service levels last."""
    first = goals.objectives[0]
    sign = -1 if first.better == "more" else 1

    def place(outcome: CandidateOutcome) -> tuple[bool, int, float]:
        better = sum(dominates(other, outcome, goals) for other in outcomes)
        return not is_within(outcome, goals), better, sign * outcome.estimate(first.name).mean

    return sorted(outcomes, key=place)


def table(outcomes: Sequence[CandidateOutcome], goals: Goals) -> Table:
    """A line for each candidate: its number, what it is, means with their 95 % intervals, replications, its state.

    Behind each objective is what a candidate has more of it than the best, paired.
    """
    firsts = _firsts(outcomes, goals)

    def cells(outcome: CandidateOutcome) -> Iterator[str]:
        for measure in goals.measures:
            yield measure.told(outcome.estimate(measure.name))
            if measure in firsts:
                yield measure.told(_from_best(outcome, measure, firsts[measure]), signed=True)

    rows = (
        (
            str(each.candidate.number),
            *map(shown, each.candidate.choice.values()),
            *cells(each),
            str(len(each.replications)),
            state(each, outcomes, goals),
        )
        for each in ordered(outcomes, goals)
    )
    measured = ((each.heading, "from the best") if each in firsts else (each.heading,) for each in goals.measures)
    headings = ("", *outcomes[0].candidate.choice, *chain(*measured), "runs", "state")
    return Table(headings, tuple(rows))


def rows(outcomes: Sequence[CandidateOutcome], goals: Goals) -> Iterator[list[Any]]:
    """For a CSV file: the headings, then a row for each candidate, in their own order."""
    measures = [*outcomes[0].replications[0]]
    firsts = _firsts(outcomes, goals)
    gaps = [f"{each.name}_from_best" for each in firsts]
    named = [f"{name}{end}" for name in (*measures, *gaps) for end in ("", "_low", "_high")]
    yield ["candidate", *outcomes[0].candidate.choice, "replications", "pareto", "state", *named]
    for each in outcomes:
        values = [harmless(shown(value)) for value in each.candidate.choice.values()]
        found = [each.estimate(name) for name in measures]
        found += [_from_best(each, objective, first) for objective, first in firsts.items()]
        said = state(each, outcomes, goals)
        yield [each.candidate.number, *values, len(each.replications), said == "Pareto", said, *cells_of(found)]


def cells_of(found: Sequence[Estimate]) -> list[str]:
    """Means and the ends of their intervals, as cells of a CSV file: nothing where there is no value."""
    values = (value for each in found for value in (each.mean, each.low, each.high))
    return ["" if value is None or math.isnan(value) else repr(value) for value in values]


def _firsts(outcomes: Sequence[CandidateOutcome], goals: Goals) -> dict[RunMeasure, CandidateOutcome | None]:
    """The best in each objective in the mean, of those that keep the service levels; None: none does."""
    left = [each for each in outcomes if is_within(each, goals)]

    def best(objective: RunMeasure) -> CandidateOutcome | None:
        sign = 1 if objective.better == "more" else -1
        return max(left, key=lambda each: sign * each.estimate(objective.name).mean, default=None)

    return {objective: best(objective) for objective in goals.objectives}


def _from_best(outcome: CandidateOutcome, objective: RunMeasure, first: CandidateOutcome | None) -> Estimate:
    """Not a number for the best itself, and where there is none."""
    return Estimate(math.nan) if first is None or first is outcome else gap(first, outcome, objective)
