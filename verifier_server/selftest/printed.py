"""Copies what libraries and native code print, on standard output and error, into the report of a self-test.

Before a runtime of a chip crashes, it prints why. So a process of its own does the copying: it survives the crash.

    python -m verifier_server.selftest.printed REPORT    # what `Copied` starts; reads a list of secrets, then output
"""

import io
import json
import os
import re
import select
import signal
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
_END_OF_PART = b"\0\n"  # asks the copying process for a byte, as soon as it has copied all before
_PATIENCE = 5.0  # seconds to wait for it


class Copied:
    """From now until `end`, what this process and its children print is shown on standard error and copied."""

    def __init__(self, report: Path, secrets: Sequence[str]) -> None:
        """All of the file descriptors 0, 1 and 2 have to be open."""
        read, self._pipe = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "verifier_server.selftest.printed", str(report.absolute())],
            cwd=_ROOT,
            stdin=read,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C in a terminal is for this process, which ends it
        )
        os.close(read)
        os.write(self._pipe, json.dumps(list(secrets)).encode() + b"\n")
        _flush()
        self._saved = {stream: os.dup(stream) for stream in _STREAMS}
        for stream in _STREAMS:
            os.dup2(self._pipe, stream)

    def settle(self) -> None:
        """Wait until all that was printed so far is in the report."""
        _flush()
        answers = self._process.stdout
        assert answers is not None
        with suppress(BrokenPipeError):  # it was killed
            os.write(self._pipe, _END_OF_PART)
            if select.select([answers], [], [], _PATIENCE)[0]:
                os.read(answers.fileno(), 1)

    def end(self) -> None:
        """Give the process its streams back, when all is copied. A second call does nothing.

        What children print later is copied as long as they live.
        """
        if not self._saved:
            return
        self.settle()
        for stream, saved in self._saved.items():
            os.dup2(saved, stream)
            os.close(saved)
        self._saved = {}
        os.close(self._pipe)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):  # its reader is gone
                stream.flush()


def main() -> None:
    """Copy standard input to standard error as it comes, and line by line to the report, without its secrets."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # else a terminal may stop a process in the background that prints
    given = io.BufferedReader(io.FileIO(0))
    hide = hider(json.loads(given.readline()))
    with open(sys.argv[1], "a", encoding="utf-8", errors="backslashreplace") as report:

        def write(lines: Sequence[bytes]) -> None:
            with suppress(OSError):  # the disk is full: what prints must go on
                report.writelines(_MARK + hide(_plain(line)) + "\n" for line in lines)
                report.flush()

        rest = b""
        while printed := given.read1():
            parts = (rest + printed).split(_END_OF_PART)
            with suppress(OSError):  # the terminal is gone
                os.write(2, printed.replace(_END_OF_PART, b""))
            for part in parts[:-1]:
                write(part.splitlines())
                os.write(1, b".")
            *lines, rest = parts[-1].split(b"\n")
            write(lines)
        write(rest.splitlines())


def _plain(line: bytes) -> str:
    """A line as it looks at the end: without colours, and of what overwrites itself only the last."""
    return _COLOURS.sub("", line.decode(errors="backslashreplace")).rstrip("\r").rpartition("\r")[2]


if __name__ == "__main__":
    main()
