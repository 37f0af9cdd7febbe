"""The tables of a run and of runs side by side: the same in the terminal and on the page."""

from collections.abc import Sequence

from lab.simulator.results.measures import DISTRIBUTED, MEASURES, PERCENTILES, SHARE, Measure
from lab.simulator.results.student import Estimate
from lab.simulator.results.summary import Summary
from specpair.command_line.table import NOTHING, Table

# Measures that charts show over time, in their order.
OVER_TIME = (
    *("throughput_tps", "ttft_p95_ms", "tpot_p95_ms", "slo_attainment"),
    *("queue_depth", "occupancy", "utilisation", "slots_held"),
)


def times(run: Summary) -> Table:
    """A row for each distribution of times, a column for each percentile, in ms."""
    found = run.estimates()
    rows = []
    for name, (title, _) in DISTRIBUTED.items():
        cells = [told(MEASURES[key], found.get(key)) for key in (f"{name}_{each}_ms" for each in PERCENTILES)]
        if any(cell != NOTHING for cell in cells):
            rows.append((title, *cells))
    return Table(("ms", *PERCENTILES), tuple(rows))


def figures(run: Summary) -> Table:
    """A row for each other measure that has a value."""
    found = run.estimates()
    rows = (
        (each.title, told(each, found[each.name]), "" if each.unit == SHARE else each.unit)
        for each in MEASURES.values()
        if not each.statistic and each.name in found
    )
    return Table(("measure", "mean", "unit"), tuple(rows))


def grouped(run: Summary, kind: str, heading: str) -> Table:
    """A row for each tenant, kind of devices, or verifier; columns in which none has anything are left out."""
    groups = run.grouped(kind)
    measures = [
        MEASURES[name]
        for name in next(iter(groups.values()), {})
        if any(told(MEASURES[name], each[name]) != NOTHING for each in groups.values())
    ]
    rows = ((name or "-", *(told(each, values[each.name]) for each in measures)) for name, values in groups.items())
    return Table((heading, *map(headed, measures)), tuple(rows))


def headed(measure: Measure) -> str:
    """The heading of a measure's column or row."""
    return f"{measure.words}, {measure.unit}" if measure.unit not in ("", SHARE) else measure.words


def captioned(measure: Measure) -> str:
    """The caption of a measure's chart: shares are in percent there."""
    return f"{measure.words}, %" if measure.unit == SHARE else headed(measure)


def told(measure: Measure, value: Estimate | None) -> str:
    """A mean with half of its interval behind it, where it has one; with both ends, where they are not as far."""
    if value is None:
        return NOTHING
    mean = measure.shown(value.mean)
    if mean == NOTHING or value.half is None:
        return mean
    if value.cut:
        return f"{mean} ({measure.shown(value.low)} to {measure.shown(value.high)})"
    return f"{mean} ± {measure.shown(value.half)}"


def difference_told(measure: Measure, gap: Estimate) -> str:
    """A difference with its sign, and half of its interval behind it, where it has one."""
    text = measure.shown(gap.mean, signed=True)
    return text if text == NOTHING or gap.half is None else f"{text} ± {measure.shown(gap.half)}"


def all_tables(run: Summary) -> Sequence[tuple[str, Table]]:
    """Those of a run, with their titles; tables with one row of groups alone are left out."""
    groups = [
        (title, grouped(run, kind, heading), fewest)
        for title, kind, heading, fewest in (
            ("Tenants", "tenants", "tenant", 2),
            ("Drafters", "devices", "kind", 2),
            ("Verifiers", "nodes", "verifier", 1),
        )
    ]
    return [
        ("Times", times(run)),
        ("Figures", figures(run)),
        *((title, table) for title, table, fewest in groups if len(table.rows) >= fewest),
    ]
