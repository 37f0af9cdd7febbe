"""The status line below a text while it is written: tokens, live rate, TTFT.

On a terminal that shows the text as well, the line is in the row below the cursor, and the cursor returns to where the
text continues, within a line or not. The line is wiped before anything else is written.
"""

import os
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Protocol

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from specpair.numbers import counted

_WINDOW = 2.0  # seconds over which the live rate is measured
_WIPE_BELOW = "\x1b[J"  # from the cursor to the end of the screen
_ROW_BELOW = "\x1bD\x1b[A"  # makes sure that there is a row below: down, which may scroll, and up, in one column
_SAVE, _RESTORE = "\x1b7", "\x1b8"


class Display(Protocol):
    """What a program keeps drawing on the terminal while it works: a status line, a progress bar."""

    def say(self, line: str) -> None:
        """Write a line that stays, in a row of its own. Any thread may call it."""

    def busy(self, what: str) -> bool:
        """Show `what` until there is news. Returns False where there is no room for it. Any thread may call it."""


_lock = threading.RLock()  # guards what is drawn: the text's thread draws, and any thread may say something
_shown: Display | None = None


def say(line: str) -> None:
    """Write a line to standard error, from any thread, in a row of its own."""
    with _lock:
        if _shown is not None:
            _shown.say(line)
        else:
            print(line, file=sys.stderr, flush=True)


@contextmanager
def displayed(display: Display) -> Iterator[None]:
    """A context in which `say` and `draw` go to `display`."""
    global _shown
    _shown = display
    try:
        yield
    finally:
        _shown = None


def draw(said: str) -> bool:
    """Show `said` in the status line until more text comes. False if there is no such line. Any thread may call it."""
    with _lock:
        return _shown is not None and _shown.busy(said)


class StatusLine:
    """One row with the metrics so far, where a terminal can show it. Elsewhere it writes only what is said meanwhile,
    in rows of their own."""

    def __init__(
        self,
        console: Console,
        *,
        below_text: bool,
        clock: Callable[[], float] = time.monotonic,
        wanted: bool = True,
        on_break: Callable[[], object] = lambda: None,
    ) -> None:
        """`below_text`: the text may be written to the same terminal or file, and each piece is reported to `wrote`.
        `on_break`: called when something else than the text has begun another row."""
        self._on_break = on_break
        self._console, self._below_text, self._clock = console, below_text, clock
        self._on = wanted and console.is_terminal and not console.is_dumb_terminal
        self._drawn = False
        self._column = 0  # of the cursor within the text; the terminal's width after a full row
        self._within_row = False  # whether the text ended within a row; a tab moves the cursor, but no column here
        self._began = clock()
        self._ttft: float | None = None
        self._tokens = 0
        self._marks: deque[tuple[float, int]] = deque()  # times and token counts of the last `_WINDOW` seconds

    def begin(self) -> None:
        """Show the line, which says that the first token is awaited."""
        global _shown
        self._began = self._clock()
        _shown = self
        self.busy("waiting for the first token")

    def wipe(self) -> None:
        with _lock:
            if self._drawn:
                self._drawn = False
                self._write(_WIPE_BELOW if self._below_text else f"\r{_WIPE_BELOW}")

    def end(self) -> None:
        """Erase the line. From then on, `say` and `draw` do not go to it."""
        global _shown
        with _lock:
            self.wipe()
            _shown = None

    def say(self, line: str) -> None:
        """Write a line that is no part of the text, in a row of its own."""
        with _lock:
            self.wipe()
            if self._below_text and self._within_row:
                self._write("\n")
                self._column, self._within_row = 0, False
                self._on_break()
            print(line, file=sys.stderr, flush=True)

    def wrote(self, tokens: int, text: str) -> None:
        """Count `tokens` more tokens, which wrote `text` to standard output, and show the metrics."""
        if text:
            self._within_row = not text.endswith("\n")
        if not self._on:
            return
        now = self._clock()
        if self._ttft is None:
            self._ttft = now - self._began
        self._tokens += tokens
        self._marks.append((now, self._tokens))
        while len(self._marks) > 2 and now - self._marks[0][0] > _WINDOW:
            self._marks.popleft()
        self._move(text)
        self.busy(self._metrics())

    def busy(self, what: str) -> bool:
        """Show `what` in the line. Returns whether there was room for it."""
        with _lock:
            return self._on and self._draw(what)

    def _metrics(self) -> str:
        (first, before), (last, count) = self._marks[0], self._marks[-1]
        rate = f"{(count - before) / (last - first):.1f} tokens/s, " if last > first else ""
        return f"{counted(self._tokens, 'token')}, {rate}TTFT {1e3 * (self._ttft or 0.0):.0f} ms"

    def _draw(self, said: str) -> bool:
        width = self._console.width
        self.wipe()
        if self._below_text and self._column >= width:
            # The terminal has yet to decide where the next character goes, and forgets it when the cursor moves.
            return False
        shown = f"drafter: {said}"
        shown = shown if cell_len(shown) < width else set_cell_size(shown, width - 1)
        if self._console.color_system is not None and not self._console.no_color:
            shown = f"\x1b[2m{shown}\x1b[0m"
        if self._below_text:
            self._write(f"{_ROW_BELOW}{_SAVE}\r\x1b[B{shown}{_RESTORE}")
        else:
            self._write(f"\r{_WIPE_BELOW}{shown}")
        self._drawn = True
        return True

    def _move(self, text: str) -> None:
        """Move the column by `text`, on a terminal that wraps full rows."""
        width = self._console.width
        for character in text:
            if character == "\n":
                self._column = 0
                continue
            cells = cell_len(character)
            self._column = cells if self._column + cells > width else self._column + cells

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


def may_share_rows(out: IO[str], notes: IO[str]) -> bool:
    """Whether `out` and `notes` may reach one screen or one file: they are one, or another program is behind `out`."""
    try:
        if os.path.sameopenfile(out.fileno(), notes.fileno()):
            return True
    except (OSError, ValueError, AttributeError):  # no file: the output stays in this process
        return False
    return notes.isatty() and not screen_is_ours(out)


def screen_is_ours(out: IO[str]) -> bool:
    """Whether no other program writes to the screen: behind a pipe, `out` may reach it too, as in `… | cat`."""
    try:
        mode = os.fstat(out.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # no file: the output stays in this process
        return True
    return stat.S_ISREG(mode) or stat.S_ISCHR(mode)  # a character device: a terminal, or /dev/null
