"""`drafter report`: what a profile says, in the terminal and as a picture."""

import argparse
import sys

from rich.console import Console

from drafter_client.flags import path
from drafter_client.profiles.png import NoMatplotlib, draw
from drafter_client.profiles.reading import read_run
from drafter_client.profiles.terminal import show


def report_parser() -> argparse.ArgumentParser:
    """Flags of `python -m drafter_client report`."""
    parser = argparse.ArgumentParser(
        prog="drafter report", description="Draw what a run with --profile has left behind.", allow_abbrev=False
    )
    parser.add_argument("folder", type=path, metavar="DIR", help="the folder that --profile named")
    parser.add_argument("--run", type=int, metavar="N", help="which run of it (default: the last with drafts)")
    picture = parser.add_mutually_exclusive_group()
    picture.add_argument("--png", type=path, metavar="FILE", help="the picture (default: report-N.png in the folder)")
    picture.add_argument("--no-png", action="store_true", help="in the terminal only")
    return parser


def run_report(options: argparse.Namespace) -> int:
    """Show the report. Raises ProfileError. Without matplotlib there is no picture, which matters if one was named."""
    run = read_run(options.folder, options.run)
    show(run, Console(markup=False, highlight=False))
    if options.no_png:
        return 0
    path = options.png or options.folder / f"report-{run.figures['run']}.png"
    try:
        draw(run, path)
    except NoMatplotlib as missing:
        if options.png is not None:
            raise
        print(f"drafter: {missing}", file=sys.stderr)
        return 0
    print(f"drafter: drawn to {path}", file=sys.stderr)
    return 0
