"""What a person or a program sees of a run: text while it comes, then figures or one JSON object."""

import json
import sys
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from drafter_client.display.decision_table import Reasons
from drafter_client.display.panel import STYLES, legend, show, show_main
from drafter_client.display.panel_rows import headline, notes, resumed
from drafter_client.display.status_line import StatusLine, same_terminal, screen_is_ours
from drafter_client.generation.generation import Tokens
from drafter_client.metrics.statistics import Stats
from speculation.terminal_text import several_lines

_TAB = 8


class Readout:
    """Text goes to standard output, everything else to standard error, so that a pipe gets the text alone.

    The figures at the end: all of them if `stats`; else the main ones, as a panel in a terminal and as one line through
    a pipe. While a text is written, a terminal shows a line with the live rate, unless the text goes through a pipe:
    whoever reads there may show it on the same terminal.
    """

    def __init__(
        self, *, as_json: bool, stream: bool, stats: bool = False, piece: Callable[[int], str] | None = None
    ) -> None:
        """`piece`: the text of a token, to show the decision on each instead of streaming the text."""
        self._json, self._stream, self._all = as_json, stream and not as_json and piece is None, stats
        self._out = Console(markup=False, highlight=False, soft_wrap=True)
        self._notes = Console(stderr=True, markup=False, highlight=False)
        self._reasons = None if piece is None or as_json else Reasons(piece, self._notes)
        self._shown = 0  # characters of the text
        together = self._stream and self._out.is_terminal and same_terminal(sys.stdout, sys.stderr)
        # rich takes a pipe for a terminal under FORCE_COLOR
        wanted = self._reasons is None and sys.stderr.isatty() and screen_is_ours(sys.stdout)
        self._status = StatusLine(self._notes, below_text=together, wanted=wanted)

    def begin(self, *, of_two: bool = True) -> None:
        """Explain the colours where there are any; `of_two`: whether more than one model may write."""
        coloured = self._out.color_system is not None and not self._out.no_color
        if of_two and coloured and self._stream and self._out.is_terminal:
            self._out.print(legend(self._out.width))
        self._status.begin()

    def add(self, news: Tokens) -> None:
        """Show committed tokens."""
        if self._reasons is not None:
            self._reasons.show(news.position, news.tokens)
        self._status.wipe()
        written = ""
        for token in news.tokens:
            self._shown += len(token.text)
            if self._stream and token.text:
                written += self._write(token.text, STYLES[token.source])
        self._status.wrote(len(news.tokens), written)

    def busy(self, what: str) -> None:
        """The text is whole, and something else is under way."""
        self._status.busy(what)

    def close(self) -> None:
        """Whatever happened: no line of progress stays behind."""
        self._status.end()

    def end(self, stats: Stats, text: str) -> None:
        """Show the rest of `text`, then the figures."""
        self._status.end()
        if self._json:
            print(json.dumps(stats.report(text)))
            return
        self._write(text[self._shown if self._stream else 0 :] + "\n", "")
        if self._all:
            show(stats, self._notes)
        elif self._notes.is_terminal:
            show_main(stats, self._notes)
        else:
            for line in (", ".join(headline(stats)), *resumed(stats), *notes(stats)):
                self._notes.print(Text(f"drafter: {line}"), soft_wrap=True)

    def _write(self, text: str, style: str) -> str:
        """Returns what the terminal got."""
        if self._out.is_terminal:
            text = several_lines(text).expandtabs(_TAB)
            self._out.print(Text(text, style), end="")
        else:  # to the letter: rich would expand tabs and drop carriage returns
            self._out.file.write(text)
        self._out.file.flush()
        return text
