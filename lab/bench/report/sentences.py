"""What a report says in words: the same in the terminal, in Markdown and on the page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.bench.records import CaseRecord
from lab.bench.statistics import measures
from lab.bench.statistics.analysis import Analysis
from lab.bench.statistics.bootstrap import FEWEST
from lab.bench.statistics.comparison import Comparison, times
from specpair.command_line.table import figure
from specpair.numbers import counted


def title(analysis: Analysis) -> str:
    """One line that says what was measured."""
    run = analysis.run
    often = "once each" if run.repetitions == 1 else f"{run.repetitions} times each"
    told = f"{', '.join(side.name for side in run.sides)}: {counted(len(run.cases), 'case')}, {often}, {run.begun[:16]}"
    return told.replace("T", " ") if analysis.complete else f"{told.replace('T', ' ')}, not finished"


def load(case: CaseRecord) -> str:
    """One line that says what a case sends."""
    at_once = "as many at once as arrive" if case.concurrency is None else f"{case.concurrency} at once"
    told = [f"group {case.group}", counted(case.requests, "request"), at_once]
    told += [f"{case.input_tokens} tokens in"] if case.input_tokens else []
    told += [f"{case.output_tokens} tokens out"] if case.output_tokens else []
    arrival = {name: given for name, given in case.arrival.items() if name != "closed"}
    for name, fields in (("arrival", arrival), ("sampling", case.sampling)):
        told += [f"{name}: {_listed(fields)}"] if fields else []
    bounds = {"TTFT": case.slo.ttft_ms, "ITL": case.slo.itl_ms, "latency": case.slo.latency_ms}
    kept = [f"{name} of {figure(bound)} ms" for name, bound in bounds.items() if bound is not None]
    told += ["objective: " + ", ".join(kept)] if kept else []
    return "; ".join(told)


def _listed(fields: Mapping[str, Any]) -> str:
    """Fields with their values, also those of a field that has fields of its own."""
    return ", ".join(
        f"{key} {_listed(value) if isinstance(value, Mapping) else value}" for key, value in fields.items()
    )


def verdicts(analysis: Analysis, case: CaseRecord) -> list[str]:
    """What the comparisons of a case say, as sentences: for each side first what differs, then what does not;
    equality of texts and scores last."""
    compared = [
        said
        for side in analysis.run.sides
        for said in _compared(
            [each for each in analysis.comparisons if (each.case, each.side) == (case.name, side.name)]
        )
    ]
    equal = [f"texts: {each.sentence}" for each in analysis.equalities if each.case == case.name]
    scores = [
        f"answers: {each.side} has {each.right} of {each.answers} right, {each.unread} without a number"
        for each in analysis.scores
        if each.case == case.name
    ]
    splits = [
        f"answers: {each.only_side} of {each.pairs} are right of {each.side} alone, {each.only_baseline} of "
        f"{each.baseline} alone (p = {each.p:.2f})"
        for each in analysis.score_comparisons
        if each.case == case.name
    ]
    return [*compared, *equal, *scores, *splits]


def _compared(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """What the comparisons of one side in one case say."""
    names = {measure.key: measure.name for measure in measures.ALL}
    unclear, few = [], []
    for each in comparisons:
        name = names[each.measure]
        if each.winner is not None:
            yield f"{name}: {each.verdict}" if each.measure == measures.SPEED.key else each.verdict
        elif each.low is not None and each.high is not None:
            unclear.append(f"{name} ({times(each.low)} to {times(each.high)})")
        else:
            few.append(f"{name} {times(each.ratio)}")
    if unclear:
        yield f"{comparisons[0].side}: no difference seen in {', '.join(unclear)}"
    if few:
        first = comparisons[0]
        said = f"{first.side}: too few to tell, {FEWEST} requests are needed"
        yield f"{said}; times {first.baseline}: {', '.join(few)}"
