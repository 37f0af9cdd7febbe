"""`drafter report`: shows a recorded run in the terminal, or with all others as one HTML file."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drafter_client.cli import flags
from drafter_client.display import panel
from drafter_client.errors import TraceError
from lab.report.reader import RunTrace, read_run, read_runs
from lab.report.recorded import acceptance_by_depth, headline, statistics
from specpair import shared_files
from specpair.command_line.parser import Parser, Parsers, Switch
from specpair.protocol.terminal_text import one_line

_BAR = 40  # characters of the longest bar
_NAMED_BY_RUN = True  # of `--html` without a file: it is in the folder, named by its run


def run(arguments: Sequence[str]) -> int:
    """Show the report. Returns the exit status. Exits with status 2 for flags that do not go together.

    Raises TraceError.
    """
    made = parser()
    options = made.parse(arguments)
    if options.html is None and not options.text:
        made.error("--no-text: is about the HTML file, ask for that with --html")
    run = read_run(options.folder, options.run)
    runs = [run] if options.run is not None or options.html is None else read_runs(options.folder)
    _show(run, Console(markup=False, highlight=False))
    if options.html is not None:
        _note(f"written to {_write(runs, options)}")
    return 0


def _show(run: RunTrace, console: Console) -> None:
    """Print a run: the panel of `--stats`, and acceptance by depth."""
    stats = statistics(run)
    which = f"run {run.metrics['run']}" + (f", one of {run.of}" if run.of > 1 else "")
    ended_early = f", ended early: {run.metrics['error']}" if run.metrics["error"] else ""
    console.print(Text(one_line(f"{which}: {headline(run, stats)}{ended_early}")))
    panel.show(stats, console)
    if depths := acceptance_by_depth(run.rounds):
        console.print(Text("acceptance by depth", "bold"))
        table = Table.grid(padding=(0, 2))
        table.add_column(justify="right", style="dim")
        table.add_column(justify="right")
        for depth in depths:
            bar = Text("█" * round(_BAR * depth.share), "green").append(f" {depth.accepted} of {depth.drafts}", "dim")
            table.add_row(str(depth.depth), f"{depth.share:.0%}", bar)
        console.print(table)


def _write(runs: Sequence[RunTrace], options: argparse.Namespace) -> Path:
    """Write the HTML file, replacing an existing file as a whole. Returns its path."""
    from lab.report.page import page  # other commands begin sooner without it

    name = "report.html" if options.run is None else f"report-{options.run}.html"
    path: Path = options.folder / name if options.html is _NAMED_BY_RUN else options.html
    try:
        made = page(runs, text=options.text)
    except ValueError as error:
        raise TraceError(f"the JSON files in {options.folder} hold no valid JSON: {error}: is it a trace?") from None
    try:
        with shared_files.replacing(path) as file:
            file.write(made.encode())
    except OSError as error:
        raise TraceError(f"the page {path} cannot be written: {error.strerror}") from None
    return path


def _note(line: str) -> None:
    print(f"drafter: {line}", file=sys.stderr)


def parser() -> Parser:
    """The parser of `python -m drafter_client report`."""
    made = Parser(
        "drafter report",
        usage="[FLAGS] DIR",
        description="Show one run that --profile recorded, in the terminal. Or write all runs as one HTML file "
        "that you can send to others: the file needs no other file and loads nothing.",
        examples=(
            "drafter report runs --run 2",
            "drafter report runs --html runs.html --no-text",
        ),
    )
    runs = made.add_argument_group("run")
    runs.add_argument("folder", type=flags.path, metavar="DIR", help="the folder that --profile named")
    runs.add_argument("--run", type=flags.whole(1), metavar="N", help="which run (default: the last with drafts)")
    page = made.add_argument_group("page")
    page.add_argument(
        "--html",
        type=flags.path,
        nargs="?",
        const=_NAMED_BY_RUN,
        metavar="FILE",
        help="write all runs, or the one of --run (default: report.html, report-N.html in the folder)",
    )
    page.add_argument(
        "--text",
        action=Switch,
        default=True,
        help="include the text, if it was recorded, and token ids (default: yes)",
    )
    return made


PARSERS: Parsers = {"drafter report": parser}
