"""Where commands print."""

import sys

from rich.console import Console

from specpair.protocol.terminal_text import one_line

_WIDEST = 1000  # columns of a file or a pipe: more than any table has


def standard_output() -> Console:
    """Standard output, as wide as the terminal. What goes to no terminal has room for all columns."""
    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else _WIDEST)


def note(said: str) -> None:
    """Tell of something in one line on standard error."""
    print(f"simulator: {one_line(said)}", file=sys.stderr)
