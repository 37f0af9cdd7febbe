"""Copies what libraries and native code print, on standard output and error, into the report of a self-test.

Before a runtime of a chip crashes, it prints why. So a process of its own does the copying: it survives the crash.

    python -m verifier_server.selftest.printed REPORT    # what `Copied` starts; reads a list of secrets, then output
"""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from verifier_server.selftest.secrets import hider

_ROOT = Path(__file__).resolve().parents[2]
_STREAMS = (1, 2)  # file descriptors
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MARK = "        | "  # before each line in the report
_LAST = 5.0  # seconds that the copying may take at the end: a process that was left behind may hold the pipe


class Copied:
    """From now until `end`, what this process and its children print is shown on standard error and copied."""

    def __init__(self, report: Path, secrets: Sequence[str]) -> None:
        read, write = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "verifier_server.selftest.printed", str(report.absolute())],
            cwd=_ROOT,
            stdin=read,
            stdout=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C in a terminal is for this process, which ends it
        )
        os.close(read)
        os.write(write, json.dumps(list(secrets)).encode() + b"\n")
        _flush()
        self._saved: list[tuple[int, int]] = []
        for stream in _STREAMS:
            with suppress(OSError):  # closed by the user
                self._saved.append((stream, os.dup(stream)))
                os.dup2(write, stream)
        os.close(write)

    def end(self) -> None:
        """Give the process its streams back, and wait until all is copied. A second call does nothing."""
        _flush()
        while self._saved:
            stream, saved = self._saved.pop()
            os.dup2(saved, stream)
            os.close(saved)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):  # its reader is gone
                stream.flush()


def main() -> None:
    """Copy standard input to standard error as it comes, and line by line to the report, without its secrets."""
    given = io.BufferedReader(io.FileIO(0))
    hide = hider(json.loads(given.readline()))
    with open(sys.argv[1], "a", encoding="utf-8", errors="backslashreplace", buffering=1) as report:
        rest = b""
        while printed := given.read1():
            with suppress(OSError):  # the terminal is gone
                os.write(2, printed)
            *lines, rest = (rest + printed).split(b"\n")
            report.writelines(_MARK + hide(_plain(line)) + "\n" for line in lines)
        if rest:
            report.write(_MARK + hide(_plain(rest)) + "\n")


def _plain(line: bytes) -> str:
    """A line as it looks at the end: without colours, and of what overwrites itself only the last."""
    return _COLOURS.sub("", line.decode(errors="backslashreplace")).rstrip("\r").rpartition("\r")[2]


if __name__ == "__main__":
    main()
