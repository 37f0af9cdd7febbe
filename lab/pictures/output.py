"""Where a picture goes: `.cache/results/`, and `docs/pictures/` only with `--save`."""

import argparse
from pathlib import Path

from lab.benchmarks.harness.report import UNSAVED
from tests.paths import ROOT

TRACKED = ROOT / "docs" / "pictures"


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser with the option `--save`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="write to docs/pictures/ (default: to .cache/results/)")
    return parser


def folder_of(options: argparse.Namespace) -> Path:
    """The folder of the pictures, which is made if need be."""
    folder = TRACKED if options.save else UNSAVED
    folder.mkdir(parents=True, exist_ok=True)
    return folder
