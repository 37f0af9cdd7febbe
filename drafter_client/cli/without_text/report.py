"""`drafter report`: shows a recorded run in the terminal, as a picture, or with all others as one HTML file."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from drafter_client.cli.commands import NAMED_BY_RUN
from drafter_client.errors import TraceError
from drafter_client.trace.plot import NoMatplotlib, draw
from drafter_client.trace.reader import RunTrace, read_run, read_runs
from drafter_client.trace.terminal import show
from specpair import shared_files


def run_report(options: argparse.Namespace) -> int:
    """Show the report. Returns the exit status. Raises TraceError; NoMatplotlib only if the flags name a picture."""
    run = read_run(options.folder, options.run)
    runs = [run] if options.run is not None or options.html is None else read_runs(options.folder)
    show(run, Console(markup=False, highlight=False))
    if options.html is not None:
        _note(f"written to {_write(runs, options)}")
    if options.no_png or (options.html is not None and options.png is None):
        return 0
    path = options.png or options.folder / f"report-{run.metrics['run']}.png"
    try:
        draw(run, path)
    except NoMatplotlib as missing:
        if options.png is not None:
            raise
        _note(f"{missing}")
        return 0
    _note(f"drawn to {path}")
    return 0


def _write(runs: Sequence[RunTrace], options: argparse.Namespace) -> Path:
    """Write the HTML file; one that is there is replaced as a whole. Returns its path."""
    from drafter_client.report.page import page  # other commands begin sooner without it

    name = "report.html" if options.run is None else f"report-{options.run}.html"
    path: Path = options.folder / name if options.html is NAMED_BY_RUN else options.html
    try:
        made = page(runs, text=options.text)
    except ValueError as error:
        raise TraceError(f"the JSON files in {options.folder} hold what is no JSON: {error}: is it a trace?") from None
    try:
        with shared_files.replacing(path) as file:
            file.write(made.encode())
    except OSError as error:
        raise TraceError(f"the page {path} cannot be written: {error.strerror}") from None
    return path


def _note(line: str) -> None:
    print(f"drafter: {line}", file=sys.stderr)
