"""The tables of a report, as cells of text: the same in the terminal, in Markdown and on the page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drafter_client.bench.records import CaseRecord
from drafter_client.bench.statistics import measures
from drafter_client.bench.statistics.analysis import Analysis
from drafter_client.bench.statistics.comparison import Comparison, times
from drafter_client.bench.statistics.measures import Measure
from drafter_client.bench.statistics.summary import Summary

NOTHING = "-"
STATISTICS = ("mean", "p50", "p90", "p99")


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text. The first column is to the left, the others hold figures."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class _Column:
    heading: str
    cell: Callable[[Analysis, Summary], str]


def sides(analysis: Analysis, case: CaseRecord) -> Table:
    """A case: a row for each side. Columns in which no side has anything are left out."""
    found = analysis.summaries_of(case)
    columns = [(column, [column.cell(analysis, each) for each in found]) for column in _COLUMNS]
    kept = [(column, cells) for column, cells in columns if any(cell != NOTHING for cell in cells)]
    headings = ("side", *(column.heading for column, _ in kept))
    rows = ((each.side, *(cells[number] for _, cells in kept)) for number, each in enumerate(found))
    return Table(headings, tuple(rows))


def percentiles(analysis: Analysis, case: CaseRecord) -> Table:
    """A case: a row for each measure that has percentiles, and each side."""
    rows = tuple(
        (f"{measure.name}, {measure.unit}", each.side, *(figure(getattr(values, name)) for name in STATISTICS))
        for measure in measures.DISTRIBUTED
        for each in analysis.summaries_of(case)
        if (values := each.distributions.get(measure.key)) is not None
    )
    return Table(("measure", "side", *STATISTICS), rows)


def overview(analysis: Analysis) -> Table:
    """How many times the baseline's tokens/s each other side has: a row for each case, a column for each side."""
    others = [side.name for side in analysis.run.sides if side.name != analysis.baseline]
    rows = tuple(
        (case.name, case.group, *(_ratio(analysis.comparison(case.name, side, measures.SPEED.key)) for side in others))
        for case in analysis.run.cases
        if analysis.summaries_of(case)
    )
    return Table(("case", "group", *(f"{side} / {analysis.baseline}" for side in others)), rows)


def verdicts(analysis: Analysis, case: CaseRecord) -> list[str]:
    """What the comparisons of a case say, as sentences: tokens/s first, equality of texts and scores last."""
    compared = [_said(each) for each in analysis.comparisons if each.case == case.name]
    equal = [f"texts: {each.sentence}" for each in analysis.equalities if each.case == case.name]
    scores = [
        f"answers: {each.side} has {each.right} of {each.answers} right, {each.unread} without a number"
        for each in analysis.scores
        if each.case == case.name
    ]
    splits = [
        f"answers: {each.only_side} right of {each.side} alone, {each.only_baseline} of {each.baseline} alone "
        f"(p = {each.p:.2f})"
        for each in analysis.score_comparisons
        if each.case == case.name
    ]
    return [*compared, *equal, *scores, *splits]


def figure(value: float | None) -> str:
    """A figure with three significant digits or more."""
    if value is None:
        return NOTHING
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3g}"


def _said(compared: Comparison) -> str:
    """The verdict, with the measure and the side where it does not name them."""
    [measure] = [each for each in measures.ALL if each.key == compared.measure]
    if compared.winner is None:
        return f"{measure.name}, {compared.side}: {compared.verdict}"
    return f"{measure.name}: {compared.verdict}" if measure is measures.SPEED else compared.verdict


def _ratio(compared: Comparison | None) -> str:
    if compared is None:
        return NOTHING
    if compared.low is None or compared.high is None:
        return f"{times(compared.ratio)} (too few)"
    bounds = f"{times(compared.low)} to {times(compared.high)}"
    return f"{times(compared.ratio)} ({bounds})" if compared.winner is not None else f"unclear ({bounds})"


def _against_baseline(analysis: Analysis, of: Summary) -> str:
    if of.side == analysis.baseline:
        return NOTHING
    return _ratio(analysis.comparison(of.case, of.side, measures.SPEED.key))


def _statistic(measure: Measure, statistic: str) -> Callable[[Analysis, Summary], str]:
    def cell(_: Analysis, of: Summary) -> str:
        found = of.distributions.get(measure.key)
        return NOTHING if found is None else figure(getattr(found, statistic))

    return cell


def _value(measure: Measure) -> Callable[[Analysis, Summary], str]:
    def cell(_: Analysis, of: Summary) -> str:
        found = of.values.get(measure.key)
        if found is None:
            return NOTHING
        return f"{found:.0%}" if measure.unit == "share" else figure(found)

    return cell


def _failed(_: Analysis, of: Summary) -> str:
    failed = sum(of.failures.values())
    return f"{failed}/{of.requests}" if failed else NOTHING


def _same_text(analysis: Analysis, of: Summary) -> str:
    found = [each for each in analysis.equalities if (each.case, each.side) == (of.case, of.side)]
    return f"{found[0].equal}/{found[0].pairs}" if found else NOTHING


def _headed(measure: Measure) -> str:
    return f"{measure.name}, {measure.unit}" if measure.unit in ("ms", "J", "requests/s") else measure.name


_COLUMNS = (
    _Column("tokens/s", _statistic(measures.SPEED, "mean")),
    _Column("times baseline", _against_baseline),
    *(
        _Column(f"{measure.name} {name}, ms", _statistic(measure, name))
        for measure in (measures.TTFT, measures.ITL, measures.LATENCY)
        for name in ("p50", "p99")
    ),
    *(_Column(_headed(measure), _value(measure)) for measure in measures.SINGLE),
    _Column("same text", _same_text),
    _Column("failed", _failed),
)


def title(analysis: Analysis) -> str:
    """One line that says what was measured."""
    run = analysis.run
    count = len(analysis.run.cases)
    cases = "1 case" if count == 1 else f"{count} cases"
    often = "once each" if run.repetitions == 1 else f"{run.repetitions} times each"
    told = f"{', '.join(side.name for side in run.sides)}: {cases}, {often}, {run.begun[:16]}"
    return told.replace("T", " ") if analysis.complete else f"{told.replace('T', ' ')}, not finished"


def shown_columns(table: Table, widths: Sequence[int], room: int) -> int:
    """How many of a table's columns fit into `room` characters, with two characters between them; two at least."""
    used, count = 0, 0
    for width in widths:
        used += width + 2
        if used > room:
            break
        count += 1
    return max(2, min(count, len(table.headings)))
