"""Prints tables and facts: as wide as the terminal where there is one, a line each where a program reads them."""

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from specpair.protocol.terminal_text import one_line

_GAP, _INDENT = "  ", "    "
_NARROWEST = 20  # letters in a line, at least


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of cells. Where they are wider than the terminal, the first cell of each has a line of its own.

    Nothing in the cells can move the cursor.
    """
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    most = _columns()
    if most is None or sum(widths) + len(_GAP) * (len(widths) - 1) <= most:
        for line in lines:
            print(_GAP.join(line).rstrip())
        return
    for first, *others in lines:
        print(first.rstrip())
        print(textwrap.fill(_GAP.join(others).rstrip(), most, initial_indent=_INDENT, subsequent_indent=_INDENT))


def _columns() -> int | None:
    """The columns that a line may take; None: as many as it needs."""
    return max(shutil.get_terminal_size().columns - 1, _NARROWEST) if sys.stdout.isatty() else None


def print_facts(rows: Sequence[tuple[str, str]]) -> None:
    """Print labels, each with what there is to say. Nothing in it can move the cursor."""
    label_width = max(len(label) for label, _ in rows)
    indent = " " * (label_width + len(_GAP))
    columns = _columns()
    for label, text in rows:
        line = f"{label.ljust(label_width)}{_GAP}{one_line(text)}"
        if columns is None:
            print(line)
            continue
        most = max(columns, len(indent) + _NARROWEST)
        print(textwrap.fill(line, most, subsequent_indent=indent, break_on_hyphens=False))


def print_json(value: Any) -> None:
    """Print one object or array in a line."""
    print(json.dumps(value))
