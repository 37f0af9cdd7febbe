"""The output of a run: the text while it comes, or the decisions on its tokens; then metrics or one JSON object."""

import json
import sys
from collections.abc import Callable, Iterable

from rich.console import Console
from rich.text import Text

from drafter_client.display.flow import Emoji, StyledText, WordWrap
from drafter_client.display.panel import STYLES, legend, show, show_main
from drafter_client.display.panel_rows import headline, notes, resumed
from drafter_client.display.status_line import StatusLine, may_share_rows, screen_is_ours
from drafter_client.generation.generation import Token, Tokens
from drafter_client.statistics import Stats
from specpair.protocol.terminal_text import several_lines

_WIDEST = 14  # characters of a token
_HEAD = f"{'place':>5}  {'token':<{_WIDEST}} {'p':>6}  {'draft':<{_WIDEST}} {'p':>6} {'q':>6} {'drawn':>6}  verdict"
_SHOWN = {"own": "no draft"}  # "own" in the protocol: the target's token where no draft token was judged
_STYLES = {"accepted": "green", "rejected": "yellow", "own": "cyan"}


class DecisionTable:
    """Prints decisions as they come."""

    def __init__(self, piece: Callable[[int], str], out: Console) -> None:
        """`piece`: returns the text of a token id."""
        self._piece, self._out = piece, out
        self._begun = False

    def show(self, position: int, tokens: Iterable[Token]) -> None:
        """Print the decisions on `tokens`, which begin at `position`; tokens without a decision are left out."""
        for at, token in enumerate(tokens, position):
            if token.decision is not None:
                if not self._begun:
                    self._begun = True
                    self._out.print(Text(_HEAD, "dim"), soft_wrap=True)
                self._out.print(Text(self._line(at, token), _STYLES[token.decision.verdict]), soft_wrap=True)

    def _line(self, position: int, token: Token) -> str:
        why = token.decision
        assert why is not None
        draft = "-" if why.draft is None else self._shown(why.draft)
        numbers = " ".join(f"{_number(each):>6}" for each in (why.draft_p, why.q, why.drawn))
        return (
            f"{position:>5}  {self._shown(why.token):<{_WIDEST}} {_number(why.p):>6}  {draft:<{_WIDEST}} {numbers}  "
            f"{_SHOWN.get(why.verdict, why.verdict)}"
        )

    def _shown(self, token: int) -> str:
        text = ascii(self._piece(token))
        return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


_TAB = 8


class Readout:
    """Writes the text to standard output and everything else to standard error, so that a pipe gets the text alone.

    At the end come the metrics: all of them if `stats`; else the main ones, as a panel in a terminal and as one line
    through a pipe. While a text is written, a terminal shows a status line with the live rate, unless the text goes
    through a pipe: the program behind it may write to the same terminal.
    """

    def __init__(
        self, *, as_json: bool, stream: bool, stats: bool = False, piece: Callable[[int], str] | None = None
    ) -> None:
        """`piece`: returns the text of a token id. With it, the decisions on tokens are shown instead of the text."""
        self._json, self._stream, self._all = as_json, stream and not as_json and piece is None, stats
        self._out = Console(markup=False, highlight=False, soft_wrap=True)
        self._notes = Console(stderr=True, markup=False, highlight=False)
        self._decisions = None if piece is None or as_json else DecisionTable(piece, self._notes)
        self._shown = 0  # characters of the text that `add` has seen
        below_text = self._stream and may_share_rows(sys.stdout, sys.stderr)
        # rich takes a pipe for a terminal under FORCE_COLOR
        wanted = self._decisions is None and sys.stderr.isatty() and screen_is_ours(sys.stdout)
        self._emoji, self._wrap = Emoji(), WordWrap(lambda: self._out.width)
        # A pipe that FORCE_COLOR makes a terminal gets the lines as they are.
        self._wraps = sys.stdout.isatty() and not (self._out.is_dumb_terminal or self._out.legacy_windows)
        self._status = StatusLine(self._notes, below_text=below_text, wanted=wanted, on_break=self._wrap.broken)

    def begin(self, *, of_two: bool = True) -> None:
        """Show the legend of the colours, if any, and the status line. `of_two`: a draft model may take part."""
        coloured = self._out.color_system is not None and not self._out.no_color
        if of_two and coloured and self._stream and self._out.is_terminal:
            self._out.print(legend(self._out.width))
        self._status.begin()

    def add(self, tokens: Tokens) -> None:
        """Show tokens that were committed."""
        if self._decisions is not None:
            self._decisions.show(tokens.position, tokens.tokens)
        self._status.wipe()
        written = ""
        for token in tokens.tokens:
            self._shown += len(token.text)
            if self._stream and token.text:
                written += self._write(token.text, STYLES[token.source])
        self._status.wrote(len(tokens.tokens), written)

    def busy(self, what: str) -> None:
        """Show in the status line what is under way after the text."""
        self._status.busy(what)

    def close(self) -> None:
        """Remove the status line."""
        self._status.end()

    def end(self, stats: Stats, text: str) -> None:
        """Write the rest of `text`, then the metrics."""
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
        """Write a piece of text to standard output. Returns it as written there."""
        if self._out.is_terminal:
            pieces = self._emoji.feed(several_lines(text).expandtabs(_TAB), style)
            if self._wraps:
                pieces = [each for piece in pieces for each in self._wrap.feed(piece.text, piece.style)]
            text = "".join(map(self._print, pieces))
        else:  # unchanged: rich would expand tabs and drop carriage returns
            self._out.file.write(text)
        self._out.file.flush()
        return text

    def _print(self, piece: StyledText) -> str:
        if piece.erased is not None:
            self._out.file.write(f"\r\x1b[{piece.erased}C\x1b[K")
        self._out.print(Text(piece.text, piece.style), end="")
        return piece.text
