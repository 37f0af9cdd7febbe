"""Prints tables and facts: as wide as the terminal where there is one, a line each where a program reads them."""

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from specpair.protocol.terminal_text import one_line

_GAP = "  "
_NARROWEST = 20  # letters of a fact in a line, at least


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of cells. Nothing in them can move the cursor."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_facts(rows: Sequence[tuple[str, str]]) -> None:
    """Print labels, each with what there is to say. Nothing in it can move the cursor."""
    label_width = max(len(label) for label, _ in rows)
    indent = " " * (label_width + len(_GAP))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for label, text in rows:
        line = f"{label.ljust(label_width)}{_GAP}{one_line(text)}"
        if width is None:
            print(line)
            continue
        most = max(width - 1, len(indent) + _NARROWEST)
        print(textwrap.fill(line, most, subsequent_indent=indent, break_on_hyphens=False))


def print_json(value: Any) -> None:
    """Print one object or array in a line."""
    print(json.dumps(value))
