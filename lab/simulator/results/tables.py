"""The tables of a run: the same in the terminal and on the page."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from lab.simulator.results.measures import DISTRIBUTED, MEASURES, PERCENTILES, SHARE
from lab.simulator.results.summary import RunSummary
from specpair.command_line.table import NOTHING, Table, print_table
from specpair.protocol.terminal_text import one_line


def times(run: RunSummary) -> Table:
    """A row for each distribution of times, a column for each percentile, in ms."""
    found = run.estimates()
    rows = []
    for name, (title, _) in DISTRIBUTED.items():
        cells = [MEASURES[key].told(found.get(key)) for key in (f"{name}_{each}_ms" for each in PERCENTILES)]
        if any(cell != NOTHING for cell in cells):
            rows.append((title, *cells))
    return Table(("ms", *PERCENTILES), tuple(rows))


def figures(run: RunSummary) -> Table:
    """A row for each other measure that has a value."""
    found = run.estimates()
    rows = (
        (each.title, each.told(found[each.name]), "" if each.unit == SHARE else each.unit)
        for each in MEASURES.values()
        if not each.statistic and each.name in found
    )
    return Table(("measure", "mean", "unit"), tuple(rows))


def grouped(run: RunSummary, kind: str, heading: str) -> Table:
    """A row for each tenant, kind of devices, or verifier; columns in which none has anything are left out."""
    groups = run.grouped(kind)
    measures = [
        MEASURES[name]
        for name in next(iter(groups.values()), {})
        if any(MEASURES[name].told(each[name]) != NOTHING for each in groups.values())
    ]
    rows = ((name or "-", *(each.told(values[each.name]) for each in measures)) for name, values in groups.items())
    return Table((heading, *(each.heading for each in measures)), tuple(rows))


def all_tables(run: RunSummary) -> Sequence[tuple[str, Table]]:
    """Those of a run, with their titles; empty ones, and those with one row of groups alone, are left out."""
    tables = [
        ("Times", times(run), 1),
        ("Figures", figures(run), 1),
        ("Tenants", grouped(run, "tenants", "tenant"), 2),
        ("Drafters", grouped(run, "devices", "kind"), 2),
        ("Verifiers", grouped(run, "nodes", "verifier"), 1),
    ]
    return [(title, table) for title, table, fewest in tables if len(table.rows) >= fewest]


def show(run: RunSummary, console: Console) -> None:
    """Print the tables of a run."""
    console.print(Text(one_line(f"simulation: {run.name}"), "bold"))
    for title, table in all_tables(run):
        console.print(Text(title, "dim"))
        print_table(table, console)
