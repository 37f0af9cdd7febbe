"""A run in the terminal."""

from rich.console import Console
from rich.text import Text

from lab.simulator.results.report.table import all_tables
from lab.simulator.results.summary import Summary
from specpair.command_line.table import print_table
from specpair.protocol.terminal_text import one_line


def show(run: Summary, console: Console) -> None:
    """Print the tables of a run."""
    console.print(Text(one_line(f"simulation: {run.name}"), "bold"))
    for title, table in all_tables(run):
        if table.rows:
            console.print(Text(title, "dim"))
            print_table(table, console)
