"""Runs a program in a pseudo-terminal, as a user would: with colours, a given width, and Ctrl-C."""

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.forking import Process, is_python, programs
from tests.paths import ROOT

PATIENCE = 120.0  # seconds to wait for output that normally comes within a few
_ROWS = 40
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_STATUS = re.compile(r"\x1bD\x1b\[A\x1b7.*?\x1b8", re.DOTALL)  # the status line below a text, which is erased again
_COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38|1|2)[;\d]*m")
# The leader of a new session opens the terminal, which makes it the controlling terminal, so that Ctrl-C arrives.
_IN_TERMINAL = "import os, sys; t = os.open(sys.argv[1], os.O_RDWR); [os.dup2(t, n) for n in (0, 1, 2)]; " + (
    "t > 2 and os.close(t); os.execvp(sys.argv[2], sys.argv[2:])"
)


class Terminal:
    """A program that runs in a terminal, and its output so far."""

    def __init__(self, process: Process, master: int) -> None:
        self.process = process
        self._master = master
        self._shown = b""

    @property
    def raw(self) -> str:
        """All output, including escape sequences."""
        return self._shown.decode(errors="replace")

    @property
    def text(self) -> str:
        """All output without escape sequences and status lines. Lines end with a line feed."""
        return _ESCAPES.sub("", _STATUS.sub("", self.raw)).replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        """The lines of the output; a carriage return begins a new entry, and the echo of Ctrl-C is left out."""
        # The terminal writes the echo wherever the cursor is: also before a line that the program is about to write.
        return [part.removeprefix("^C") for line in self.text.split("\n") for part in line.split("\r")]

    @property
    def coloured(self) -> bool:
        return _COLOUR.search(self.raw) is not None

    def wait_for(self, pattern: str) -> "re.Match[str]":
        """Read until `pattern` is in the text."""
        while True:
            if found := re.search(pattern, self.text):
                return found
            if not self._read():
                raise AssertionError(f"the program ended without {pattern!r}:\n{self.text}")

    def wait_for_raw(self, pattern: str) -> None:
        """Read until `pattern` is in what comes from now on, status lines included."""
        begin = len(self._shown)
        while not re.search(pattern, self._shown[begin:].decode(errors="replace")):
            assert self._read(), f"the program ended without {pattern!r}:\n{self.text}"

    def type(self, text: str) -> None:
        """Send text as from the keyboard; "\\x03" is Ctrl-C."""
        os.write(self._master, text.encode())

    def resize(self, columns: int) -> None:
        """Give the terminal another width, and tell the program."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))

    def wait(self) -> int:
        """Read to the end. Returns the exit status as a shell reports it."""
        while self._read():
            pass
        status = self.process.wait(PATIENCE)
        return status if status >= 0 else 128 - status

    def wait_until_alone(self) -> None:
        """Wait until no process of the program's session is left."""
        give_up = time.monotonic() + 20.0
        while left := session_of(self.process.pid):
            assert time.monotonic() < give_up, f"left behind: {left}"
            time.sleep(0.01)

    def _read(self) -> bool:
        give_up = time.monotonic() + PATIENCE
        ready, _, _ = select.select([self._master], [], [], max(0.0, give_up - time.monotonic()))
        if not ready:
            raise AssertionError(f"no output for {PATIENCE:g} s after:\n{self.text}")
        try:
            more = os.read(self._master, 65536)
        except OSError:  # on Linux, the other end is closed
            more = b""
        self._shown += more
        return bool(more)


@contextmanager
def terminal(command: Sequence[str], columns: int = 100, **variables: str) -> Iterator[Terminal]:
    """Run `command` in the repository's root, in a terminal of `columns`. The end of the block kills its session."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
    unwanted = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "CI", "MAKEFLAGS", "MAKELEVEL")
    here = {key: value for key, value in os.environ.items() if key not in unwanted}
    here |= {"TERM": "xterm-256color", **variables}
    process = _started(command, os.ttyname(slave), here)
    shown = Terminal(process, master)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, master)
        while process.poll() is None and not _has_terminal(process.pid):
            select.select([], [], [], 0.005)
        os.close(slave)  # the program holds it, so reading ends when the program ends
        try:
            yield shown
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _started(command: Sequence[str], name: str, variables: dict[str, str]) -> Process:
    if is_python(command):
        return programs().start(command[1:], ROOT, variables, terminal=name)
    return subprocess.Popen(
        [sys.executable, "-c", _IN_TERMINAL, name, *command],
        cwd=ROOT,
        env=variables,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _has_terminal(process: int) -> bool:
    """Whether a process has opened its terminal: its standard error is the terminal."""
    try:
        return os.readlink(f"/proc/{process}/fd/2").startswith("/dev/pts/")
    except FileNotFoundError:
        return False


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def check(shown: Terminal, columns: int) -> None:
    """Check that there is no traceback, and no line wider than the terminal, but for those of a log."""
    assert "Traceback" not in shown.text, shown.text
    wide = [line for line in shown.lines if len(line) > columns and not line.startswith("INFO: ")]
    assert not wide, f"wider than {columns} columns: {wide}"


def session_of(leader: int) -> list[int]:
    """The ids of the running processes of a session, from /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    found.append(int(entry.name))
    return found
