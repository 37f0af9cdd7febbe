"""Draws docs/pictures/demo.svg: what `make demo` leaves on a terminal of 100 columns, with its colours.

.venv/bin/python -m scripts.run_picture
"""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from itertools import groupby
from pathlib import Path

import pyte
from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
COLUMNS, LINES = 100, 60
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # the SVG would load fonts from another host


def main() -> None:
    screen = pyte.Screen(COLUMNS, LINES)
    pyte.ByteStream(screen).feed(_output([sys.executable, "-m", "examples.demo"]))
    rows = [[screen.buffer[row][column] for column in range(COLUMNS)] for row in range(LINES)]
    lines = [
        Text.assemble(*(("".join(cell.data for cell in cells), style) for style, cells in groupby(row, _style)))
        for row in rows
    ]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for line in lines:
        line.rstrip()
        console.print(line, no_wrap=True)
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(_FONT.sub("", console.export_svg(title="make demo")), encoding="utf-8")


def _output(command: list[str]) -> bytes:
    """All that `command` writes to a terminal. Raises CalledProcessError if it fails."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    written = b""
    while True:
        try:
            written += os.read(master, 65536)
        except OSError:  # on Linux: the program has ended
            break
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command, written)
    return written


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
