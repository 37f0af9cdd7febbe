"""Draws run.svg: what a text of the real pair leaves on a terminal of 100 columns, with its colours.

    .venv/bin/python -m lab.pictures.run [FOLDER]    # of the models; scripts/real_models.py fills it

The target is Qwen2.5-Coder 1.5B in bfloat16, whose steps memory bounds; its 0.5B in 4 bits drafts on the same machine.
The picture goes to `.cache/results/`, and to `docs/pictures/`, where the README shows it, only with `--save`.
"""

import re
import sys
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.style import Style
from rich.text import Text

from lab.benchmarks.harness.report import need
from lab.pictures.output import folder_of, parser_of
from scripts.real_models import BF16, DRAFT, FOLDER
from specpair.child_processes.serving import verifier
from tests.paths import ROOT
from tests.terminal.pseudo import terminal

if TYPE_CHECKING:
    from pyte.screens import Char

COLUMNS, LINES = 100, 60
PROMPT = "Write a Python class for a bank account, with type hints and short docstrings. Only the code."
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # the SVG would load fonts from another host


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / FOLDER, help=f"default: {FOLDER}")
    options = parser.parse_args()
    folder = options.folder
    need("pyte")
    if missing := [name for name in (BF16, DRAFT.name) if not (folder / name).is_file()]:
        get = f"{sys.executable} -m scripts.real_models {folder} --bf16"
        sys.exit(f"not in {folder}: {', '.join(missing)}; get them with: {get}")
    import pyte

    screen = pyte.Screen(COLUMNS, LINES)
    what = ["--prompt", PROMPT, "--chat", "--max-tokens", "160", "--baseline"]
    with verifier(model=folder / BF16, context=1024, slots=1) as server:
        flags = ["--verifier", server.url, "--draft-model", str(folder / DRAFT.name), *what]
        with terminal([sys.executable, "-m", "drafter_client", *flags], COLUMNS) as shown:
            if status := shown.wait():
                raise SystemExit(f"{shown.text}\nthe drafter ended with status {status}")
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
    picture = console.export_svg(title="drafter --prompt 'Write a Python class …' --chat --baseline")
    path = folder_of(options) / "run.svg"
    path.write_text(_FONT.sub("", picture), encoding="utf-8")
    print(f"written to {path}", file=sys.stderr)


def _style(cell: "Char") -> Style:
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
