"""The tables of a report, as cells of text: the same in the terminal, in Markdown and on the page."""

from collections.abc import Callable
from dataclasses import dataclass

from lab.bench.records import CaseRecord
from lab.bench.statistics import measures
from lab.bench.statistics.analysis import Analysis
from lab.bench.statistics.comparison import Comparison, times
from lab.bench.statistics.measures import Measure
from lab.bench.statistics.summary import Summary
from specpair.command_line.table import NOTHING, Table, figure

STATISTICS = ("mean", "p50", "p90", "p99")


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


def endpoints(analysis: Analysis) -> Table:
    """What each side is: a row for each."""
    rows = tuple(
        (
            side.name + (" (baseline)" if side.name == analysis.baseline else ""),
            side.model,
            side.url,
            ", ".join(f"{key} {value}" for key, value in side.server.items()) or NOTHING,
            figure(side.price_per_hour),
        )
        for side in analysis.run.sides
    )
    return Table(("side", "model", "address", "server", "price an hour"), rows)


def percentiles(analysis: Analysis, case: CaseRecord) -> Table:
    """A case: a row for each measure that has percentiles, and each side."""
    rows = tuple(
        (_headed(measure), each.side, *(figure(getattr(values, name)) for name in STATISTICS))
        for measure in measures.DISTRIBUTED
        for each in analysis.summaries_of(case)
        if (values := each.distributions.get(measure.key)) is not None
    )
    return Table(("measure", "side", *STATISTICS), rows)


def overview(analysis: Analysis) -> Table:
    """How many times the baseline's tokens/s each other side has, and how many of its texts are the baseline's: a row
    for each case, two columns for each side."""
    others = [side.name for side in analysis.run.sides if side.name != analysis.baseline]
    rows = tuple(
        (
            case.name,
            case.group,
            *(_ratio(analysis.comparison(case.name, side, measures.SPEED.key)) for side in others),
            *(_equal_texts(analysis, case.name, side) for side in others),
        )
        for case in analysis.run.cases
        if analysis.summaries_of(case)
    )
    ratios, texts = (f"{side} / {analysis.baseline}" for side in others), (f"same text, {side}" for side in others)
    return Table(("case", "group", *ratios, *texts), rows)


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


def _statistics(measure: Measure, *names: str) -> Callable[[Analysis, Summary], str]:
    def cell(_: Analysis, of: Summary) -> str:
        found = of.distributions.get(measure.key)
        return NOTHING if found is None else " / ".join(figure(getattr(found, name)) for name in names)

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
    return _equal_texts(analysis, of.case, of.side)


def _equal_texts(analysis: Analysis, case: str, side: str) -> str:
    found = [each for each in analysis.equalities if (each.case, each.side) == (case, side)]
    return f"{found[0].equal}/{found[0].pairs}" if found else NOTHING


def _headed(measure: Measure) -> str:
    return f"{measure.name}, {measure.unit}" if measure.unit in ("ms", "J", "requests/s") else measure.name


_COLUMNS = (
    _Column("tokens/s", _statistics(measures.SPEED, "mean")),
    _Column("times baseline", _against_baseline),
    *(
        _Column(f"{measure.name} p50 / p99, ms", _statistics(measure, "p50", "p99"))
        for measure in (measures.TTFT, measures.ITL, measures.LATENCY)
    ),
    *(_Column(_headed(measure), _value(measure)) for measure in measures.SINGLE),
    _Column("same text", _same_text),
    _Column("failed", _failed),
)
