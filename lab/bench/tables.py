"""The tables and sentences of a report: the same in the terminal and on the page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from lab.bench import measures
from lab.bench.analysis import Analysis
from lab.bench.comparison import FEWEST, Comparison
from lab.bench.jobs import PreparedCase
from lab.bench.measures import Measure
from lab.bench.summary import Summary
from lab.reports.charts import times
from specpair.command_line.table import NOTHING, Table, figure, print_table
from specpair.numbers import counted
from specpair.protocol.terminal_text import one_line


def title(analysis: Analysis) -> str:
    """One line that says what was measured."""
    run = analysis.run
    often = "once each" if run.repetitions == 1 else f"{run.repetitions} times each"
    told = f"{', '.join(side.name for side in run.sides)}: {counted(len(run.cases), 'case')}, {often}, {run.begun[:16]}"
    return told.replace("T", " ") if analysis.complete else f"{told.replace('T', ' ')}, not finished"


def load(prepared: PreparedCase) -> str:
    """One line that says what a case sends."""
    case = prepared.case
    at_once = "as many at once as arrive" if case.most_at_once is None else f"{case.most_at_once} at once"
    told = [f"group {case.group}", counted(prepared.requests, "request"), at_once]
    told += [f"{case.input_tokens} tokens in"] if case.input_tokens else []
    told += [f"{case.output_tokens} tokens out"]
    arrival = case.arrival.model_dump(exclude_none=True, exclude={"trace": {"requests"}})
    for name, fields in (("arrival", arrival), ("sampling", case.sampling.fields())):
        told += [f"{name}: {_listed(fields)}"] if fields else []
    bounds = {"TTFT": case.slo.ttft_ms, "ITL": case.slo.itl_ms, "latency": case.slo.latency_ms}
    kept = [f"{name} of {figure(bound)} ms" for name, bound in bounds.items() if bound is not None]
    told += ["objective: " + ", ".join(kept)] if kept else []
    return "; ".join(told)


def _listed(fields: Mapping[str, Any]) -> str:
    """Fields with their values, nested fields included."""
    return ", ".join(
        f"{key} {_listed(value) if isinstance(value, Mapping) else value}" for key, value in fields.items()
    )


def verdicts(analysis: Analysis, case: PreparedCase) -> list[str]:
    """The comparisons of a case as sentences: for each side the differences, then the equal measures; equality of texts
    last."""
    compared = [
        said
        for side in analysis.run.sides
        for said in _compared(
            [each for each in analysis.comparisons if (each.case, each.side) == (case.name, side.name)]
        )
    ]
    equal = [f"texts: {each.sentence}" for each in analysis.equalities if each.case == case.name]
    return [*compared, *equal]


def _compared(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """The comparisons of one side in one case, as sentences."""
    unclear, few = [], []
    for each in comparisons:
        name = measures.NAMES[each.measure]
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


def sides(analysis: Analysis, case: PreparedCase) -> Table:
    """A case: a row for each side. Columns in which no side has anything are left out."""
    found = analysis.summaries_of(case)
    columns = [(heading, [cell(analysis, each) for each in found]) for heading, cell in _COLUMNS]
    kept = [(heading, cells) for heading, cells in columns if any(cell != NOTHING for cell in cells)]
    headings = ("side", *(heading for heading, _ in kept))
    rows = ((each.side, *(cells[number] for _, cells in kept)) for number, each in enumerate(found))
    return Table(headings, tuple(rows))


def endpoints(analysis: Analysis) -> Table:
    """The endpoints: a row for each side."""
    rows = tuple(
        (
            side.name + (" (baseline)" if side.name == analysis.baseline else ""),
            side.model or NOTHING,
            side.url,
            ", ".join(f"{key} {value}" for key, value in side.server.items()) or NOTHING,
            figure(side.price_per_hour),
        )
        for side in analysis.run.sides
    )
    return Table(("side", "model", "address", "server", "price an hour"), rows)


def overview(analysis: Analysis) -> Table:
    """How many times the baseline's tokens/s each other side has, and how many of its texts are the baseline's: a row
    for each case, two columns for each side."""
    others = [side.name for side in analysis.run.sides if side.name != analysis.baseline]
    rows = tuple(
        (
            case.name,
            case.case.group,
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


def _equal_texts(analysis: Analysis, case: str, side: str) -> str:
    found = [each for each in analysis.equalities if (each.case, each.side) == (case, side)]
    return f"{found[0].equal}/{found[0].pairs}" if found else NOTHING


def _headed(measure: Measure) -> str:
    return f"{measure.name}, {measure.unit}" if measure.unit in ("ms", "requests/s") else measure.name


_COLUMNS: tuple[tuple[str, Callable[[Analysis, Summary], str]], ...] = (
    ("tokens/s", _statistics(measures.SPEED, "mean")),
    ("times baseline", _against_baseline),
    *(
        (f"{measure.name} p50 / p99, ms", _statistics(measure, "p50", "p99"))
        for measure in (measures.TTFT, measures.ITL, measures.LATENCY)
    ),
    *((_headed(measure), _value(measure)) for measure in measures.SINGLE),
    ("same text", lambda analysis, of: _equal_texts(analysis, of.case, of.side)),
    ("failed", _failed),
)


def show(analysis: Analysis, console: Console) -> None:
    """Print a table and verdicts for each case, then which side wins where. Names come from files: control characters
    in them are escaped."""
    whole = not console.is_terminal  # a file gets each sentence as one line
    console.print(Text(one_line(title(analysis)), "bold"))
    for case in analysis.run.cases:
        if not analysis.summaries_of(case):
            continue
        console.print(
            Text(f"\n{one_line(case.name)}", "bold"), Text(one_line(case.case.description), "dim"), soft_wrap=whole
        )
        console.print(Text(one_line(load(case)), "dim"), soft_wrap=whole)
        print_table(sides(analysis, case), console)
        for said in verdicts(analysis, case):
            console.print(Text(f"  {one_line(said)}"), soft_wrap=whole)
        console.print()
    if len(analysis.run.sides) > 1:
        console.print(Text(f"tokens/s, times those of {one_line(analysis.baseline)}", "bold"))
        print_table(overview(analysis), console)
