"""`drafter report`: shows a recorded run in the terminal and as a picture."""

import argparse
import sys

from rich.console import Console

from drafter_client.trace.plot import NoMatplotlib, draw
from drafter_client.trace.reader import read_run
from drafter_client.trace.terminal import show


def run_report(options: argparse.Namespace) -> int:
    """Show the report. Returns the exit status. Raises TraceError; NoMatplotlib only if the flags name a picture."""
    run = read_run(options.folder, options.run)
    show(run, Console(markup=False, highlight=False))
    if options.no_png:
        return 0
    path = options.png or options.folder / f"report-{run.metrics['run']}.png"
    try:
        draw(run, path)
    except NoMatplotlib as missing:
        if options.png is not None:
            raise
        print(f"drafter: {missing}", file=sys.stderr)
        return 0
    print(f"drafter: drawn to {path}", file=sys.stderr)
    return 0
