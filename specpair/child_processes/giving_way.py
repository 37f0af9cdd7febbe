"""A child process gives way to texts: while one is written, it is stopped for 15 sixteenths of the time.

It may have the lowest priority, but it shares caches and memory with what writes a text. So a text loses a
sixteenth of what it would lose beside a process that is never stopped: 3 % if that halved its speed. The system
continues a stopped process whose parent has died, so none is left behind. Windows cannot stop a process.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_RUNS, _STOPPED = 0.1, 1.5  # seconds


class GivingWay:
    """Counts the texts that are written, and stops a process meanwhile. Thread-safe."""

    def __init__(self, runs: float = _RUNS, stopped: float = _STOPPED) -> None:
        """`runs`, `stopped`: for so many seconds, in turn, while a text is written."""
        self._runs, self._stopped = runs, stopped
        self._changed = threading.Condition()  # guards the two
        self._texts = 0
        self._process: subprocess.Popen[str] | None = None

    @contextmanager
    def text(self) -> Iterator[None]:
        """A context in which a text is written."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    @contextmanager
    def process(self, process: "subprocess.Popen[str]") -> Iterator[None]:
        """A context in which a process gives way. It is not stopped at the end."""
        thread = threading.Thread(target=self._pace, args=(process,), name="pace", daemon=True)
        with self._changed:
            self._process = process
        thread.start()
        try:
            yield
        finally:
            self.release()
            thread.join()

    def release(self) -> None:
        """Let the process run on, so that it can be ended."""
        with self._changed:
            self._process = None
            self._changed.notify()

    def _count(self, one: int) -> None:
        with self._changed:
            self._texts += one
            if self._texts == max(0, one):  # the first one, or the last one
                self._changed.notify()

    def _pace(self, process: "subprocess.Popen[str]") -> None:
        stopped = False
        with self._changed:
            while self._process is process:
                stopped = self._texts > 0 and not stopped
                _run(process, not stopped)
                self._changed.wait((self._stopped if stopped else self._runs) if self._texts else None)
            _run(process, True)


def _run(process: "subprocess.Popen[str]", on: bool) -> None:
    if sys.platform != "win32":
        process.send_signal(signal.SIGCONT if on else signal.SIGSTOP)
