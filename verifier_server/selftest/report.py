"""The report of a self-test: a file that holds all that was found so far at every moment, and lines for the terminal.

A crash of native code or a killed process leaves the file with every check before it, and the name of that check.
"""

import os
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from backends.trial.checks import CheckFailed, CheckSkipped
from specpair.protocol.terminal_text import one_line, several_lines

OK, FAILED, SKIPPED = "ok", "FAILED", "skipped"
_STYLES = {OK: "green", FAILED: "bold red", SKIPPED: "dim"}


class ReportLost(Exception):
    """The report cannot be written any more. The message says why."""


class SelftestReport:
    """Runs checks and writes down how they went. Used by one thread at a time."""

    def __init__(
        self, path: Path, console: Console, hide: Callable[[str], str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`path`: a file that does not exist yet; raises OSError otherwise.
        `hide`: takes secrets out of a text.
        """
        self.path = path
        # Several processes append to it. A path in a line may hold bytes that are no text.
        self.file = open(path, "x", encoding="utf-8", errors="backslashreplace", opener=_appending)  # noqa: SIM115
        self.counts: Counter[str] = Counter()  # checks by verdict
        self.current = ""  # the name of the check under way
        self.settle: Callable[[], None] = lambda: None  # called before a verdict: waits for what the check has printed
        self._console, self._hide, self._clock = console, hide, clock
        self._began = clock()

    def section(self, title: str, *, shown: bool = True) -> None:
        """Begin a part of the report. `shown`: on the terminal, too."""
        self.line("", f"== {title} ==")
        if shown:
            self._print(Text(title, style="bold"))

    def line(self, *lines: str) -> None:
        """Write lines to the file only. Raises ReportLost."""
        try:
            for line in lines:
                self.file.write(self._hide(several_lines(line)) + "\n")
            self.file.flush()
        except OSError as error:
            raise ReportLost(f"{self.path} cannot be written any more: {error.strerror}") from None

    def check(self, name: str, run: Callable[[], str]) -> bool:
        """Run a check, which returns what it measured, in a few words, or raises. Returns whether it is ok.

        Any exception but CheckSkipped is a failure, whose traceback the file gets. Raises ReportLost.
        """
        self.current = name
        self.line(f"…       {name}")
        began = self._clock()
        trace = ""
        try:
            verdict, detail = OK, run()
        except CheckSkipped as reason:
            verdict, detail = SKIPPED, str(reason)
        except CheckFailed as reason:
            verdict, detail, trace = FAILED, str(reason), traceback.format_exc()
        except Exception as error:  # whatever an engine raises belongs in the report
            verdict, detail, trace = FAILED, f"{type(error).__name__}: {error}", traceback.format_exc()
        seconds = self._clock() - began
        self.settle()
        self.counts[verdict] += 1
        words = one_line(f"{name}: {detail}" if detail else name)
        self.line(f"{verdict:7} {words}  {seconds:.2f} s", *trace.splitlines())
        self._show(verdict, self._hide(words), f"{seconds:.1f} s")
        self.current = ""
        return verdict == OK

    def _show(self, verdict: str, words: str, took: str) -> None:
        """Print a line for a check, whose words may go on below themselves."""
        line = Table.grid(padding=(0, 1))
        line.add_column(width=8)
        line.add_column(width=7, justify="right")
        line.add_column()
        line.add_row(Text(verdict, style=_STYLES[verdict]), Text(took, style="dim"), Text(words))
        self._print(line)

    def _print(self, shown: Table | Text, *, soft_wrap: bool = False) -> None:
        with suppress(OSError):  # the terminal is gone: the file goes on
            self._console.print(shown, soft_wrap=soft_wrap)

    def finish(self) -> int:
        """Write the summary, and return the exit status: 0 if no check failed, else 1."""
        counts = ", ".join(f"{self.counts[verdict]} {verdict}" for verdict in (OK, FAILED, SKIPPED))
        summary = f"{self.counts.total()} checks in {self._clock() - self._began:.0f} s: {counts}"
        self.line("", summary)
        failed = self.counts[FAILED] > 0
        self._print(Text(summary, style=_STYLES[FAILED] if failed else "bold"))
        self._print(Text(f"the report: {one_line(str(self.path))}"), soft_wrap=True)
        return 1 if failed else 0


def _appending(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_APPEND, 0o666)
