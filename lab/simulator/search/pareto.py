"""Which candidates are worth having: those that no other dominates. As a table and as rows of a file. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from lab.simulator.results.measures import Measure
from lab.simulator.results.report.table import difference_told, told
from lab.simulator.results.student import Estimate
from lab.simulator.search.outcomes import Goals, Outcome, best, dominates, gap, is_within, ranked, surely_dominates
from lab.simulator.search.space import shown
from specpair.command_line.table import Table, harmless

PARETO = "Pareto"
_FROM_BEST = "from the best"


def ordered(outcomes: Sequence[Outcome], goals: Goals) -> list[Outcome]:
    """Those that nobody dominates first, by the first objective; then those that were dropped last, and so on."""
    best = goals.objectives[0]
    sign = -1 if best.better == "more" else 1
    kept = [each for each in outcomes if each.dropped is None]
    dropped = sorted((each for each in outcomes if each.dropped is not None), key=lambda each: -_round(each))
    front = [each for each in kept if is_on_front(each, outcomes, goals)]
    front.sort(key=lambda each: sign * each.estimate(best.name).mean)
    return [*front, *(each for each in ranked(kept, goals) if each not in front), *dropped]


def is_on_front(outcome: Outcome, outcomes: Sequence[Outcome], goals: Goals) -> bool:
    """Whether a candidate keeps the service levels, was not dropped, and nobody dominates it in the mean."""
    return outcome.dropped is None and is_within(outcome, goals) and _dominating(outcome, outcomes, goals) is None


def state(outcome: Outcome, outcomes: Sequence[Outcome], goals: Goals) -> str:
    """What became of a candidate, in words. Another one `is` better by more than chance, or `may be`, by the means."""
    if outcome.dropped is not None:
        by, round_ = outcome.dropped
        return f"{by.candidate.number} is better, dropped in round {round_}"
    if not is_within(outcome, goals):
        return "misses the SLO" if goals.attainment is not None else "no values"
    by_mean = _dominating(outcome, outcomes, goals)
    if by_mean is None:
        return PARETO
    sure = next((each for each in outcomes if surely_dominates(each, outcome, goals)), None)
    if sure is not None:
        return f"{sure.candidate.number} is better"
    return f"{by_mean.candidate.number} may be better"


def table(outcomes: Sequence[Outcome], goals: Goals) -> Table:
    """A line for each candidate: its number, what it is, means with their 95 % intervals, replications, its state.

    Behind each objective is what a candidate has more of it than the best, paired: the load that both have drops out.
    """
    firsts = _firsts(outcomes, goals)
    rows = [
        (
            str(each.candidate.number),
            *(shown(value) for value in each.candidate.choice.values()),
            *(cell for measure in goals.measures for cell in _cells(each, measure, firsts)),
            str(len(each.replications)),
            state(each, outcomes, goals),
        )
        for each in ordered(outcomes, goals)
    ]
    columns = [*outcomes[0].candidate.choice]
    measured = [
        (heading(each), _FROM_BEST) if each in goals.objectives else (heading(each),) for each in goals.measures
    ]
    headings = ("", *map(_short, columns), *chain(*measured), "runs", "state")
    return Table(headings, tuple(rows))


def heading(measure: Measure) -> str:
    """A measure with its unit."""
    return f"{measure.words} ({measure.unit})" if measure.unit and measure.unit != "share" else measure.words


def rows(outcomes: Sequence[Outcome], goals: Goals) -> Iterator[list[Any]]:
    """For a CSV file: the headings, then a row for each candidate, in their own order."""
    columns = [*outcomes[0].candidate.choice]
    measures = [*outcomes[0].replications[0]]
    gaps = [f"{each.name}_from_best" for each in goals.objectives]
    named = [f"{name}{end}" for name in (*measures, *gaps) for end in ("", "_low", "_high")]
    yield ["candidate", *columns, "replications", "pareto", "state", *named]
    firsts = _firsts(outcomes, goals)
    for each in outcomes:
        values = [harmless(shown(value)) for value in each.candidate.choice.values()]
        found = [each.estimate(name) for name in measures]
        found += [_from_best(each, objective, first) for objective, first in firsts.items()]
        figures = [_figure(value) for one in found for value in (one.mean, one.low, one.high)]
        on_front = is_on_front(each, outcomes, goals)
        yield [each.candidate.number, *values, len(each.replications), on_front, state(each, outcomes, goals), *figures]


def _dominating(outcome: Outcome, outcomes: Sequence[Outcome], goals: Goals) -> Outcome | None:
    return next((each for each in outcomes if each.dropped is None and dominates(each, outcome, goals)), None)


def _round(outcome: Outcome) -> int:
    assert outcome.dropped is not None
    return outcome.dropped[1]


def _firsts(outcomes: Sequence[Outcome], goals: Goals) -> dict[Measure, Outcome | None]:
    """The best in each objective; None: none keeps the service levels."""
    return {objective: best(outcomes, goals, objective) for objective in goals.objectives}


def _cells(outcome: Outcome, measure: Measure, firsts: Mapping[Measure, Outcome | None]) -> Iterator[str]:
    yield told(measure, outcome.estimate(measure.name))
    if measure in firsts:
        yield difference_told(measure, _from_best(outcome, measure, firsts[measure]))


def _from_best(outcome: Outcome, objective: Measure, first: Outcome | None) -> Estimate:
    """Not a number for the best itself, and where there is none."""
    return Estimate(math.nan) if first is None or first is outcome else gap(first, outcome, objective)


def _figure(value: float | None) -> Any:
    """A float as short as it can be without loss; nothing where there is no value."""
    return "" if value is None or value != value else repr(value)


def _short(path: str) -> str:
    """A path's last parts: the kind and the key."""
    return path.removeprefix("devices.").removeprefix("verifiers").removeprefix("drafters")
