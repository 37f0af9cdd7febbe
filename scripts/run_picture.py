"""Draws docs/pictures/demo.svg: what `make demo` leaves on a terminal of 100 columns, with its colours.

.venv/bin/python -m scripts.run_picture
"""

import re
import sys
from io import StringIO
from itertools import groupby

import pyte
from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.paths import ROOT
from tests.terminal.pseudo import terminal

PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
COLUMNS, LINES = 100, 60
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # the SVG would load fonts from another host


def main() -> None:
    screen = pyte.Screen(COLUMNS, LINES)
    with terminal([sys.executable, "-m", "examples.demo"], COLUMNS) as shown:
        if status := shown.wait():
            raise SystemExit(f"{shown.text}\nmake demo ended with status {status}")
        pyte.Stream(screen).feed(shown.raw)
    rows = [[screen.buffer[row][column] for column in range(COLUMNS)] for row in range(LINES)]
    lines = [
        Text.assemble(*(("".join(cell.data for cell in cells), style) for style, cells in groupby(row, _style)))
        for row in rows
    ]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    console = Console(record=True, width=COLUMNS, file=StringIO())
    for line in lines:
        line.rstrip()
        console.print(line, no_wrap=True)
    PICTURE.write_text(_FONT.sub("", console.export_svg(title="make demo")), encoding="utf-8")


def _style(cell: Char) -> Style:
    bright, colour = cell.fg.startswith("bright"), cell.fg.removeprefix("bright")
    colour = "yellow" if colour == "brown" else colour  # pyte's name of the colour 3
    if re.fullmatch("[0-9a-f]{6}", colour):
        colour = f"#{colour}"
    elif bright:
        colour = f"bright_{colour}"
    return Style(
        color=None if colour == "default" else colour, bold=cell.bold, italic=cell.italics, underline=cell.underscore
    )


if __name__ == "__main__":
    main()
