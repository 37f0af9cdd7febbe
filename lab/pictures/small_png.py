"""Screenshots as small PNG files: of 128 colours, which is more than a page of text and lines has."""

from io import BytesIO
from pathlib import Path

from lab.benchmarks.harness.report import need

COLOURS = 128


def save(png: bytes, path: Path) -> None:
    """Write a screenshot to a file. Needs Pillow, which comes with matplotlib."""
    need("PIL")
    from PIL import Image

    picture = Image.open(BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)
