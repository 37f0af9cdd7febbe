"""A terminal in memory: what a person sees when a program is done, and what has scrolled away above."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyte

ROOT = Path(__file__).resolve().parents[2]


class Screen:
    """Feed it what a program wrote."""

    def __init__(self, columns: int, rows: int = 24) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=0.5)
        self._stream = pyte.Stream(self._screen)

    def feed(self, text: str) -> None:
        """As a terminal has it, whose driver adds a carriage return to each line feed."""
        self._stream.feed(text.replace("\r\n", "\n").replace("\n", "\r\n"))

    @property
    def lines(self) -> list[str]:
        """From the first to the last, without blanks at the ends of lines and blank lines at the end."""
        gone = ["".join(row[at].data for at in range(self._screen.columns)) for row in self._screen.history.top]
        lines = [line.rstrip() for line in [*gone, *self._screen.display]]
        while lines and not lines[-1]:
            lines.pop()
        return lines


def run_in_terminal(command: Sequence[str], columns: int, **environment: str) -> tuple[int, str]:
    """Run a program whose three standard streams are one terminal: its status, and all that it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {"TERM": "xterm-256color", **os.environ, "PYTHONPATH": str(ROOT), **environment}
    for name in ("COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        variables.pop(name, None)
    streams: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen(command, env=variables, close_fds=True, start_new_session=True, **streams) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            written += piece
    os.close(ours)
    return process.returncode, written.decode()


def drafter(*flags: str) -> list[str]:
    """The command line of the drafter."""
    return [sys.executable, "-m", "drafter_client", *flags]
