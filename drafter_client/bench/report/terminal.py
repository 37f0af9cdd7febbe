"""The figures of a run in the terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from drafter_client.bench.report import tables
from drafter_client.bench.statistics.analysis import Analysis
from specpair.protocol.terminal_text import one_line


def show(analysis: Analysis, console: Console) -> None:
    """Print a table and verdicts for each case, then which side wins where. Names come from files: control characters
    in them are escaped."""
    console.print(Text(one_line(tables.title(analysis)), "bold"))
    for case in analysis.run.cases:
        if not analysis.summaries_of(case):
            continue
        console.print(Text(f"\n{one_line(case.name)}", "bold"), Text(one_line(case.description), "dim"))
        _print_grid(tables.sides(analysis, case), console)
        for said in tables.verdicts(analysis, case):
            console.print(Text(f"  {one_line(said)}"), soft_wrap=not console.is_terminal)
        console.print()
    if len(analysis.run.sides) > 1:
        console.print(Text(f"tokens/s, times those of {one_line(analysis.baseline)}", "bold"))
        _print_grid(tables.overview(analysis), console)


def _print_grid(table: tables.Table, console: Console) -> None:
    """Columns that the terminal has no room for are left out from the right, and named."""
    cells = [[one_line(cell) for cell in row] for row in (table.headings, *table.rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(table.headings))]
    shown = tables.shown_columns(table, widths, console.width)
    grid = Grid(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, heading in enumerate(cells[0][:shown]):
        grid.add_column(Text(heading), justify="left" if number == 0 else "right", no_wrap=True)
    for row in cells[1:]:
        grid.add_row(*map(Text, row[:shown]))
    console.print(grid)
    if left_out := cells[0][shown:]:
        console.print(Text(f"  no room for {', '.join(left_out)}: widen the terminal, or print to a file", "dim"))
