"""Turns from standard input without cursor movements: a pipe, a file, or a terminal that can only write lines."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from drafter_client.errors import BadPrompt

if sys.platform != "win32":
    import termios

PROMPT, MORE = "> ", "… "
CONTINUED = "\\"  # at the end of a line that is typed: the next line belongs to the same turn


class TurnReader(Protocol):
    """Where turns come from."""

    def read(self) -> str | None:
        """The next turn; None: there is no further one."""


class PipedInput:
    """A turn is a line of standard input, which is no terminal."""

    def read(self) -> str | None:
        """Raises BadPrompt for a line that is not UTF-8."""
        line = b"" if sys.stdin is None else sys.stdin.buffer.readline()
        try:
            return line.decode("utf-8-sig").rstrip("\r\n") if line else None
        except UnicodeDecodeError:
            raise BadPrompt("standard input is not UTF-8 text") from None


class LineInput:
    """Turns are typed at a terminal that edits lines by itself. A backslash at its end continues a line."""

    def read(self) -> str | None:
        lines: list[str] = []
        while True:
            print(MORE if lines else PROMPT, end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                print(file=sys.stderr)
                return None
            line = line.rstrip("\r\n")
            lines.append(line.removesuffix(CONTINUED))
            if not line.endswith(CONTINUED):
                return "\n".join(lines)


@contextmanager
def unechoed() -> Iterator[None]:
    """A context in which a terminal does not show what is typed, so that it does not mix with an answer. It is kept for
    the next turn."""
    if sys.platform == "win32" or sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    without = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(terminal, termios.TCSADRAIN, without)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
