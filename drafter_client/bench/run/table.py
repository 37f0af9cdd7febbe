"""The terminal's table of a run: for each case a row of each side."""

from collections.abc import Callable, Sequence
from statistics import median

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from drafter_client.bench.records import CaseRecord, MeasuredRequest, Results, Stretch
from specpair.counted import counted

_COLUMNS = ("side", "texts", "TTFT", "ITL", "latency", "tokens/s", "x first", "all/s", "accepted", "good")
_NARROW = (  # two tables, one below the other
    ("side", "texts", "TTFT", "ITL", "tokens/s", "x first"),
    ("side", "latency", "all/s", "accepted", "good"),
)
_WIDE = 96  # columns of a terminal that one table takes
_LEGEND = (
    "TTFT, ITL, latency: p50 / p90 in ms. tokens/s: of a text, p50. all/s: tokens of all texts in a second of load. "
    "good: within the case's objective."
)


def show(results: Results, console: Console) -> None:
    """Print the tables of all cases that have results. Where the terminal is narrow, each has two."""
    parts = (_COLUMNS,) if console.width >= _WIDE else _NARROW
    for case in results.run.cases:
        rows = _rows(results, case)
        if not any(row["texts"] for row in rows):
            continue
        title = f"{case.name} ({case.group}): {counted(case.requests, 'request')}"
        at_once = "as they arrive" if case.concurrency is None else f"{case.concurrency} at a time"
        title = f"{title} {at_once}, {counted(results.run.repetitions, 'time')}"
        for names in parts:
            grid = Table(
                title=title if names is parts[0] else None,
                title_justify="left",
                box=SIMPLE_HEAD,
                padding=(0, 1, 0, 0),
            )
            for name in names:
                grid.add_column(name, justify="left" if name == "side" else "right", no_wrap=True)
            for row in rows:
                grid.add_row(*(row[name] for name in names))
            console.print(grid)
    console.print(_LEGEND, style="dim", soft_wrap=not console.is_terminal)


def _rows(results: Results, case: CaseRecord) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    first: float | None = None
    for side in results.run.sides:
        requests = [each for each in results.requests if (each.side, each.case) == (side.name, case.name)]
        good = [each for each in requests if each.failure is None]
        stretches = [each for each in results.stretches if (each.side, each.case) == (side.name, case.name)]
        rates = _values(good, lambda each: each.tokens_per_second)
        rate = median(rates) if rates else None
        first = rate if first is None else first
        found.append(
            {
                "side": side.name,
                "texts": f"{len(good)}/{len(requests)}" if requests else "",
                "TTFT": _two(_values(good, lambda each: each.ttft_ms)),
                "ITL": _two(_values(good, lambda each: each.itl_ms)),
                "latency": _two(_values(good, lambda each: each.latency_ms)),
                "tokens/s": _number(rate),
                "x first": f"{rate / first:.2f}" if rate is not None and first else "-",
                "all/s": _number(_throughput(good, stretches)),
                "accepted": _acceptance(good),
                "good": _share(requests, case),
            }
        )
    return found


def _throughput(requests: Sequence[MeasuredRequest], stretches: Sequence[Stretch]) -> float | None:
    """Tokens of all texts a second of the stretches in which they were written. Texts whose stretch has no record, as
    after a crash, do not count."""
    lasted = {each.number: each.ended - each.begun for each in stretches}
    timed = [each for each in requests if each.stretch in lasted]
    seconds = sum(lasted[number] for number in {each.stretch for each in timed})
    return sum(each.tokens_out or 0 for each in timed) / seconds if seconds > 0 else None


def _acceptance(requests: Sequence[MeasuredRequest]) -> str:
    told = [each.speculation for each in requests if each.speculation is not None]
    drafted = sum(each.drafted for each in told)
    return f"{sum(each.accepted for each in told) / drafted:.0%}" if drafted else "-"


def _share(requests: Sequence[MeasuredRequest], case: CaseRecord) -> str:
    if not requests or not any((case.slo.ttft_ms, case.slo.itl_ms, case.slo.latency_ms)):
        return "-"
    return f"{sum(map(case.slo.is_met, requests)) / len(requests):.0%}"


def _values(requests: Sequence[MeasuredRequest], figure: Callable[[MeasuredRequest], float | None]) -> list[float]:
    return sorted(value for each in requests if (value := figure(each)) is not None)


def _two(values: Sequence[float]) -> str:
    """p50 and p90."""
    if not values:
        return "-"
    return f"{_number(median(values))} / {_number(values[min(len(values) - 1, int(0.9 * len(values)))])}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
