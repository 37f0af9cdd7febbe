"""Tables of text and numbers, and how a terminal shows them."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from specpair.protocol.terminal_text import one_line

NOTHING = "-"
_WIDEST = 1000  # columns of a file or a pipe: more than any table has
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text. The first column is left-aligned, the others hold numbers."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def figure(value: float | None) -> str:
    """A number with three significant digits or more."""
    if value is None:
        return NOTHING
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3g}"


def harmless(value: Any) -> Any:
    """A value of a CSV file. Text that a spreadsheet would run as a formula begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


def print_table(table: Table, console: Console) -> None:
    """Print a table. Columns for which the terminal has no room are printed below, again with the first column. Control
    characters are escaped."""
    cells = [[one_line(cell) for cell in row] for row in (table.headings, *table.rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(table.headings))]
    for part in columns_in(widths, console.width):
        grid = Grid(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in part:
            grid.add_column(Text(cells[0][column]), justify="right" if column else "left", no_wrap=True)
        for row in cells[1:]:
            grid.add_row(*(Text(row[column]) for column in part))
        console.print(grid)


def columns_in(widths: Sequence[int], room: int) -> list[list[int]]:
    """The columns of each printed part where a line has `room` characters: as many as fit, at least the first column
    and one other.

    `widths`: in characters, of all columns. Two stand behind each column, one before the first.
    """
    first = 1 + widths[0] + 2
    parts, used = [[0]], first
    for number, width in enumerate(widths[1:], 1):
        if used + width + 2 > room and len(parts[-1]) > 1:
            parts.append([0])
            used = first
        parts[-1].append(number)
        used += width + 2
    return parts


def standard_output() -> Console:
    """Standard output, as wide as the terminal. Output to a file or a pipe has room for all columns."""
    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else _WIDEST)
