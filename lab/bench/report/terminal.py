"""The figures of a run in the terminal."""

from rich.console import Console
from rich.text import Text

from lab.bench.report import sentences, tables
from lab.bench.statistics.analysis import Analysis
from specpair.command_line.table import print_table
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
        print_table(tables.sides(analysis, case), console)
        for said in sentences.verdicts(analysis, case):
            console.print(Text(f"  {one_line(said)}"), soft_wrap=whole)
        console.print()
    if len(analysis.run.sides) > 1:
        console.print(Text(f"tokens/s, times those of {one_line(analysis.baseline)}", "bold"))
        print_table(tables.overview(analysis), console)
