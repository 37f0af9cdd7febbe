"""Where a picture goes: `.cache/results/`, and `docs/pictures/` only with `--save`; and small PNG files."""

import argparse
from io import BytesIO
from pathlib import Path

from lab.benchmarks.harness.report import UNSAVED, need
from tests.paths import ROOT

TRACKED = ROOT / "docs" / "pictures"
COLOURS = 128  # which is more than a page of text and lines has


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


def save_png(png: bytes, path: Path) -> None:
    """Write a screenshot to a file, with few colours. Needs Pillow, which comes with matplotlib."""
    need("PIL")
    from PIL import Image

    picture = Image.open(BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)
