"""What the commands print: tables and facts, as wide as the terminal where there is one, and the progress of a pull."""

import json
import logging
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from specpair.counted import sized
from specpair.protocol.terminal_text import one_line

_log = logging.getLogger("models.hub")
_OFTEN, _SELDOM = 0.2, 10.0  # seconds between two lines on a terminal, and elsewhere
_SPEED_OVER = 1.0  # seconds, at least, over which the speed is told
_GAP, _INDENT = "  ", "    "
_NARROWEST = 20  # letters in a line, at least


class Bar(logging.Handler):
    """The progress of a pull: a context in which it is called with the bytes that are here, and those of the model.

    A terminal has one line, which is written again and again; elsewhere a line is added now and then. What is logged of
    the hub gets lines of its own.
    """

    def __init__(self, name: str, program: str) -> None:
        super().__init__()
        self._model, self._program = name, program
        self._rewrites = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._began, self._before = 0.0, -1  # when the first bytes came, and how many were here then; -1: none came
        self._told = time.monotonic() if not self._rewrites else 0.0
        self._open = False  # whether the last line has no end yet

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._before < 0:
            self._began, self._before = now, done
        if now - self._told < (_OFTEN if self._rewrites else _SELDOM) and (done < total or not self._open):
            return
        self._told = now
        share = done / total if total else 1.0
        line = f"{self._model}: {sized(done)} of {sized(total)} ({share:.0%}){self._rest(now, done, total)}"
        if not self._rewrites:
            print(line, file=sys.stderr, flush=True)
            return
        width = max(shutil.get_terminal_size().columns - 1, 20)
        if len(line) > width:
            line = "…" + line[1 - width :]
        print(f"\r{line.ljust(width)}", end="", file=sys.stderr, flush=True)
        self._open = True

    def _rest(self, now: float, done: int, total: int) -> str:
        """The speed, and the time that is left."""
        seconds, came = now - self._began, done - self._before
        if seconds < _SPEED_OVER or came <= 0 or done >= total:
            return ""
        left = int((total - done) * seconds / came)
        return f", {sized(came / seconds)}/s, {left // 60}:{left % 60:02} left"

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())

    def interrupted(self) -> None:
        """Say that the pull was interrupted."""
        self._say("interrupted; what is fetched is kept: the same command goes on with it")

    def _say(self, text: str) -> None:
        self._end_line()
        print(f"{self._program}: {one_line(text)}", file=sys.stderr)

    def _end_line(self) -> None:
        if self._open:
            self._open = False
            print(file=sys.stderr)

    def __enter__(self) -> "Bar":
        _log.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _log.removeHandler(self)
        self._end_line()


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
