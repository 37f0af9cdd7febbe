"""The answer in sentences, as a table and as rows of a file. Pure."""

from collections.abc import Iterator
from typing import Any

from lab.simulator.capacity.promise import Judgement, amount
from lab.simulator.capacity.trials import Trial, Trials
from lab.simulator.configuration.operation import Slo
from lab.simulator.results.measures import DISTRIBUTED, MEASURES, PERCENTILES, SHARE, Measure
from lab.simulator.results.report.table import headed, told
from lab.simulator.results.student import CONFIDENCE, Estimate
from lab.simulator.search.outcomes import ATTAINMENT
from lab.simulator.search.space import label, shown
from specpair.command_line.table import Table, harmless
from specpair.counted import counted

SHOWN = ("throughput_tps", "ttft_p95_ms", "tpot_p95_ms", "utilisation")


def sentences(trials: Trials, slo: Slo, up_to: int, ended: bool = True) -> list[str]:
    """The answer: how much holds, which bound breaks first beyond it, and what makes either doubtful.

    `slo`: of the file. `up_to`: the greatest count that could have been tried. `ended`: False if it was interrupted.
    """
    edge, by_count = trials.boundary, trials.by_count
    found: list[str] = []
    inside = None if edge.inside is None else by_count[edge.inside]
    outside = None if edge.outside is None else by_count[edge.outside]
    if inside is not None:
        found.append(_inside(trials, inside))
    else:
        found.append(f"No count that was tried keeps the promise, {_named(trials, trials.in_order)}.")
    if outside is not None:
        found += _outside(trials, inside, outside, slo, ended)
    elif trials.size.wanted == "least":
        found.append(f"{trials.size.shown(trials.size.floor)} is the least that there can be.")
    elif ended:
        found.append(f"Nothing breaks up to {trials.size.shown(up_to)}, where it ends: raise --up-to.")
    for broken, held in edge.against:
        chance = "" if by_count[broken].sure and by_count[held].sure else ", which is within chance"
        found.append(f"{trials.size.shown(broken)} breaks, though {trials.size.shown(held)} holds{chance}.")
    if not ended:
        found.append("It ended early: the boundary may be far from what was tried.")
    return found


def table(trials: Trials) -> Table:
    """A row for each count, with the keys that follow from it, measures with their intervals, and its state."""
    measures = _measures(trials)
    columns = [key for key in trials.size.changes(trials.size.floor) if key != trials.size.name]
    rows = (
        (
            _count(trials, trial),
            *(shown(trial.outcome.candidate.choice[key]) for key in columns),
            *(told(each, trial.estimate(each)) for each in measures),
            str(len(trial.outcome.replications)),
            trial.state,
        )
        for trial in trials.in_order
    )
    return Table((trials.size.name, *columns, *map(headed, measures), "runs", "promise"), tuple(rows))


def rows(trials: Trials) -> Iterator[list[Any]]:
    """For a CSV file: the headings, then a row for each count with all measures that have a value anywhere."""
    columns = [key for key in trials.size.changes(trials.size.floor) if key != trials.size.name]
    estimates = [{name: trial.estimate(measure) for name, measure in MEASURES.items()} for trial in trials.in_order]
    there = [name for name in MEASURES if any(each[name].mean == each[name].mean for each in estimates)]
    ends = [f"{name}{end}" for name in there for end in ("", "_low", "_high")]
    yield [trials.size.name, *columns, "replications", "holds", "sure", *ends]
    for trial, found in zip(trials.in_order, estimates, strict=True):
        own = [_count(trials, trial), *(shown(trial.outcome.candidate.choice[key]) for key in columns)]
        figures = [_cell(value) for name in there for value in _ends(found[name])]
        yield [
            *(*map(harmless, own), len(trial.outcome.replications), trial.holds, trial.sure),
            *figures,
        ]


def _count(trials: Trials, trial: Trial) -> str:
    """A count as its column has it: a key's value."""
    return shown(trial.outcome.candidate.choice.get(trials.size.name, trial.count))


def _measures(trials: Trials) -> list[Measure]:
    bounds = [each.measure for each in trials.bounds]
    return [*dict.fromkeys([*bounds, *(MEASURES[name] for name in SHOWN)])]


def _inside(trials: Trials, trial: Trial) -> str:
    kept = "; ".join(f"{_told(each)}, {each.bound.asked} is asked" for each in trial.judgements)
    doubt = "" if trial.sure else f". That is within chance: {_doubt(trial)}"
    return (
        f"The {trials.size.wanted} that keeps the promise: {trials.size.shown(trial.count)}"
        f"{_with(trials, trial)}: {kept}{doubt}."
    )


def _outside(trials: Trials, inside: Trial | None, outside: Trial, slo: Slo, ended: bool) -> Iterator[str]:
    broken = sorted((each for each in outside.judgements if not each.kept), key=lambda each: -each.severity)
    first, others = broken[0], broken[1:]
    reason = ""
    if first.bound.measure.name == ATTAINMENT:
        reason = _of_slo(outside, first.bound.limit, slo)
    more = "".join(f"; so does {_told(each)}, {_beyond(each)}" for each in others)
    doubt = "" if outside.sure else f" That is within chance: {_doubt(outside)}."
    where = trials.size.shown(outside.count)
    yield f"What breaks first, at {where}: {_told(first)}, {_beyond(first)}{reason}{more}.{doubt}"
    if ended and inside is not None and abs(outside.count - inside.count) > 1:
        yield "What lies between was not tried: --precision 0 does."


def _of_slo(trial: Trial, share: float, slo: Slo) -> str:
    """Which bound of `slo` most requests break: by the percentile that is nearest to the asked share."""
    asked = {name: bound for name in DISTRIBUTED if (bound := getattr(slo, f"{name}_ms", None)) is not None}
    for statistic in (name for name, part in PERCENTILES.items() if part >= min(share, max(PERCENTILES.values()))):
        measures = {MEASURES[f"{name}_{statistic}_ms"]: bound for name, bound in asked.items()}
        found = {measure: trial.estimate(measure).mean for measure in measures}
        broken = [measure for measure, bound in measures.items() if found[measure] > bound]
        if broken:
            worst = max(broken, key=lambda measure: found[measure] / measures[measure])
            beyond = f"{amount(worst, found[worst] - measures[worst])} above the {measures[worst]:g} of slo"
            return f": {worst.words} is {amount(worst, found[worst])}, {beyond}"
    whole, aborted = (trial.estimate(MEASURES[name]).mean for name in ("whole", "aborted"))
    lost = aborted / (whole + aborted) if whole + aborted else 0.0
    return f": {100 * lost:.1f} % were aborted, since their devices left" if lost > (1 - share) / 2 else ""


def _told(judgement: Judgement) -> str:
    measure = judgement.bound.measure
    text = told(measure, judgement.found)
    return f"{measure.words} {text} {'' if measure.unit == SHARE else measure.unit}".rstrip()


def _beyond(judgement: Judgement) -> str:
    """How far a bound is broken."""
    bound = judgement.bound
    if judgement.excess != judgement.excess:
        return f"which has no value, and {bound.asked} is asked"
    side = "above" if bound.at_most else "below"
    share = bound.measure.unit == SHARE
    by = f"{100 * judgement.excess:.1f} points" if share else amount(bound.measure, judgement.excess)
    return f"{by} {side} the {amount(bound.measure, bound.limit)} that are asked"


def _doubt(trial: Trial) -> str:
    count = counted(len(trial.outcome.replications), "replication")
    return f"after {count} the {CONFIDENCE:.0%} interval covers what is asked, and a greater --most might tell"


def _with(trials: Trials, trial: Trial) -> str:
    """The keys that follow from a count."""
    others = {key: value for key, value in trial.outcome.candidate.choice.items() if key != trials.size.name}
    return f" ({label(others)})" if others else ""


def _named(trials: Trials, several: list[Trial]) -> str:
    return ", ".join(trials.size.shown(each.count) for each in several)


def _ends(found: Estimate) -> tuple[float | None, ...]:
    return found.mean, found.low, found.high


def _cell(value: float | None) -> str:
    return "" if value is None or value != value else repr(value)
