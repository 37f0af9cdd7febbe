"""The figures of a run in the terminal."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from drafter_client.bench.report import sentences, tables
from drafter_client.bench.statistics.analysis import Analysis
from specpair.protocol.terminal_text import one_line


def show(analysis: Analysis, console: Console) -> None:
    """Print a table and verdicts for each case, then which side wins where. Names come from files: control characters
    in them are escaped."""
    whole = not console.is_terminal  # a file gets each sentence as one line
    console.print(Text(one_line(sentences.title(analysis)), "bold"))
    for case in analysis.run.cases:
        if not analysis.summaries_of(case):
            continue
        console.print(
            Text(f"\n{one_line(case.name)}", "bold"), Text(one_line(case.description), "dim"), soft_wrap=whole
        )
        console.print(Text(one_line(sentences.load(case)), "dim"), soft_wrap=whole)
        _print_grid(tables.sides(analysis, case), console)
        for said in sentences.verdicts(analysis, case):
            console.print(Text(f"  {one_line(said)}"), soft_wrap=whole)
        console.print()
    if len(analysis.run.sides) > 1:
        console.print(Text(f"tokens/s, times those of {one_line(analysis.baseline)}", "bold"))
        _print_grid(tables.overview(analysis), console)


def _print_grid(table: tables.Table, console: Console) -> None:
    """Where the terminal has no room for all columns, the others stand below, each time with the first column."""
    cells = [[one_line(cell) for cell in row] for row in (table.headings, *table.rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(table.headings))]
    for part in columns_in(widths, console.width):
        grid = Grid(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in part:
            grid.add_column(Text(cells[0][column]), justify="right" if column else "left", no_wrap=True)
        for row in cells[1:]:
            grid.add_row(*(Text(row[column]) for column in part))
        console.print(grid)


def columns_in(widths: Sequence[int], room: int) -> list[list[int]]:
    """Which columns stand beside each other where there are `room` characters: as many as fit, and in each part the
    first column and one other at least.

    `widths`: in characters, of all columns. Two stand behind each column, one before the first.
    """
    first = 1 + widths[0] + 2
    parts, used = [[0]], first
    for number, width in enumerate(widths[1:], 1):
        if used + width + 2 > room and len(parts[-1]) > 1:
            parts.append([0])
            used = first
        parts[-1].append(number)
        used += width + 2
    return parts
