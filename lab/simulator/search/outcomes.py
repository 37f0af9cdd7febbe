"""What came of candidates, and which of them is better. Pure.

A candidate dominates another if it is better in one objective and not worse in any. One within the service levels
dominates one that is not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from lab.simulator.results.measures import MEASURES, Measure
from lab.simulator.results.student import Estimate, paired_difference
from lab.simulator.search.evaluation import Values
from lab.simulator.search.space import BadSearch, Candidate
from specpair.command_line.suggestion import advice

ATTAINMENT = "slo_attainment"


@dataclass(frozen=True)
class Goals:
    """What a search looks for. `attainment`: the least share of requests within `slo`, 0 to 1; None: any."""

    objectives: Sequence[Measure]
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
    def measures(self) -> list[Measure]:
        """The objectives, and the attainment where a share of it is wanted."""
        own = [*self.objectives]
        return own if self.attainment is None or MEASURES[ATTAINMENT] in own else [*own, MEASURES[ATTAINMENT]]


@dataclass
class Outcome:
    """The replications of a candidate so far. `dropped`: by which other one, in which round."""

    candidate: Candidate
    replications: list[Values] = field(default_factory=list)
    dropped: tuple["Outcome", int] | None = None

    def values(self, name: str) -> list[float]:
        """Of a measure, by replication; not a number: it has none."""
        return [each[name] for each in self.replications]

    def estimate(self, name: str) -> Estimate:
        return MEASURES[name].estimate(self.values(name))


def is_within(outcome: Outcome, goals: Goals) -> bool:
    """Whether a candidate has values in all replications, and keeps the service levels in the mean."""
    has_values = not any(math.isnan(value) for each in goals.measures for value in outcome.values(each.name))
    return has_values and (goals.attainment is None or outcome.estimate(ATTAINMENT).mean >= goals.attainment)


def is_surely_beyond(outcome: Outcome, goals: Goals) -> bool:
    """Whether a candidate lacks values, or misses the service levels by more than chance."""
    if any(math.isnan(value) for each in goals.measures for value in outcome.values(each.name)):
        return True
    found = outcome.estimate(ATTAINMENT)
    return goals.attainment is not None and found.high is not None and found.high < goals.attainment


def dominates(first: Outcome, second: Outcome, goals: Goals) -> bool:
    """Whether the first is better than the second in the mean."""
    within = [is_within(each, goals) for each in (first, second)]
    if within != [True, True]:
        return within[0] and not within[1]
    gains = [_gain(first, second, each).mean for each in goals.objectives]
    return min(gains) >= 0 and max(gains) > 0


def surely_dominates(first: Outcome, second: Outcome, goals: Goals) -> bool:
    """Whether the first is better than the second by more than chance: in each objective the interval of the paired
    difference (95 %, Student's t, over the replications that both have) has nothing in which the second is better."""
    if not is_within(first, goals):
        return False
    if is_surely_beyond(second, goals):
        return True
    lows = [_gain(first, second, each).low for each in goals.objectives]
    return all(low is not None and low >= 0 for low in lows) and dominates(first, second, goals)


def ranked(outcomes: Sequence[Outcome], goals: Goals) -> list[Outcome]:
    """From the best to the worst: by how many others dominate each, those beyond the service levels by what they
    attain. Equal ones keep their order."""

    def place(outcome: Outcome) -> tuple[bool, float]:
        if is_within(outcome, goals):
            return False, sum(dominates(other, outcome, goals) for other in outcomes)
        attained = outcome.estimate(ATTAINMENT).mean if goals.attainment is not None else 0.0
        return True, math.inf if math.isnan(attained) else -attained

    return sorted(outcomes, key=place)


def best(outcomes: Sequence[Outcome], goals: Goals, objective: Measure) -> Outcome | None:
    """The best in an objective in the mean, of those that were not dropped and keep the service levels; None: none."""
    left = [each for each in outcomes if each.dropped is None and is_within(each, goals)]
    sign = 1 if objective.better == "more" else -1
    return max(left, key=lambda each: sign * each.estimate(objective.name).mean, default=None)


def gap(first: Outcome, second: Outcome, objective: Measure) -> Estimate:
    """How much more the second has of an objective, over the replications that both have."""
    both = min(len(first.replications), len(second.replications))
    return paired_difference(*(each.values(objective.name)[:both] for each in (first, second)))


def _gain(first: Outcome, second: Outcome, objective: Measure) -> Estimate:
    """How much better the first is in an objective."""
    return gap(second, first, objective) if objective.better == "more" else gap(first, second, objective)
