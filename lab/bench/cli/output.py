"""Where the commands of `drafter bench` print their tables."""

import sys

from rich.console import Console

_WIDEST = 1000  # columns of a file or a pipe: more than any table has


def standard_output() -> Console:
    """Standard output, as wide as the terminal. What goes to no terminal has room for all columns."""
    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else _WIDEST)
