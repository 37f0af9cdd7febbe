"""The output of a run: the text while it comes, or the decisions on its tokens; then metrics or one JSON object."""

import json
import sys
from collections.abc import Callable
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from drafter_client.display.panel import STYLES, legend, show, show_main
from drafter_client.display.panel_rows import headline, notes, resumed
from drafter_client.display.status_line import StatusLine, may_share_rows, screen_is_ours
from drafter_client.generation.generation import Tokens
from drafter_client.statistics import Stats
from specpair.protocol.terminal_text import several_lines
from specpair.speculation.acceptance.judge import Decision

_WIDEST = 14  # characters of a token
_HEAD = f"{'place':>5}  {'token':<{_WIDEST}} {'p':>6}  {'draft':<{_WIDEST}} {'p':>6} {'q':>6} {'drawn':>6}  verdict"
_SHOWN = {"own": "no draft"}  # "own" in the protocol: the target's token where no draft token was judged
_STYLES = {"accepted": "green", "rejected": "yellow", "own": "cyan"}
TAB = 8  # columns


def _decided(position: int, why: Decision, piece: Callable[[int], str]) -> str:
    """A decision in a line."""

    def shown(token: int | None) -> str:
        text = "-" if token is None else ascii(piece(token))
        return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"

    numbers = " ".join(f"{_number(each):>6}" for each in (why.draft_p, why.q, why.drawn))
    return (
        f"{position:>5}  {shown(why.token):<{_WIDEST}} {_number(why.p):>6}  {shown(why.draft):<{_WIDEST}} {numbers}  "
        f"{_SHOWN.get(why.verdict, why.verdict)}"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


class StyledText(NamedTuple):
    """What to write next. `erased`: cells of the present row that stay, before the rest is erased and another row
    begins; None: nothing is erased."""

    text: str
    style: str
    erased: int | None = None


class TextFlow:
    """Writes a text as it comes: a pipe gets it unchanged; a terminal with control characters escaped.

    A terminal that can move its cursor begins a row with the word that does not fit on the row before. Longer words are
    split. `moves`: whether it can.
    """

    def __init__(self, out: Console) -> None:
        self._out = out
        # A pipe that FORCE_COLOR makes a terminal gets the lines as they are.
        self.moves = out.is_terminal and out.file.isatty() and not (out.is_dumb_terminal or out.legacy_windows)
        self.broken()

    def broken(self) -> None:
        """Note that another row has begun."""
        self._column = self._begin = 0  # of the cursor, and of the word before it
        self._word: list[StyledText] = []

    def write(self, text: str, style: str = "") -> str:
        """Write the next part. Returns it as written."""
        if self._out.is_terminal:
            text = several_lines(text).expandtabs(TAB)
        pieces = self._wrapped(text, style) if self.moves else [StyledText(text, style)]
        for piece in pieces:
            if piece.erased is not None:
                self._out.file.write(f"\r\x1b[{piece.erased}C\x1b[K")
            if piece.style and self._out.is_terminal:
                self._out.print(Text(piece.text, piece.style), end="", soft_wrap=True)
            else:  # unchanged: rich would expand tabs and drop carriage returns
                self._out.file.write(piece.text)
        self._out.file.flush()
        return "".join(piece.text for piece in pieces)

    def _wrapped(self, text: str, style: str) -> list[StyledText]:
        width, pieces = self._out.width, list[StyledText]()
        for character in text:
            cells = cell_len(character)
            if character.isspace():
                full = self._column >= width
                pieces.append(StyledText("\n" if full else character, style))
                self._column = 0 if full or character == "\n" else self._column + cells
                self._begin, self._word = self._column, []
                continue
            if self._column + cells > width:
                pieces += self._next_row(cells, width)
            pieces.append(StyledText(character, style))
            self._column += cells
            self._word.append(pieces[-1])
            if cells > 1:  # scripts with wide characters have no spaces
                self._begin, self._word = self._column, []
        merged: list[StyledText] = []  # neighbours of one style as one
        for piece in pieces:
            if merged and piece.erased is None and merged[-1].erased is None and merged[-1].style == piece.style:
                merged[-1] = StyledText(merged[-1].text + piece.text, piece.style)
            else:
                merged.append(piece)
        return merged

    def _next_row(self, cells: int, width: int) -> list[StyledText]:
        """Move the present word to a new row, since a character of `cells` cells does not fit."""
        word, begin = self._word, self._begin
        length = self._column - begin
        if begin == 0 or length + cells > width:  # the terminal splits it
            self.broken()
            return []
        self._column, self._begin = length, 0
        return [StyledText("\n", "", begin if word else None), *word]


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
        self._piece = None if as_json else piece
        self._headed = False  # whether the decisions' headings are shown
        self._shown = 0  # characters of the text that `add` has seen
        below_text = self._stream and may_share_rows(sys.stdout, sys.stderr)
        # rich takes a pipe for a terminal under FORCE_COLOR
        wanted = self._piece is None and sys.stderr.isatty() and screen_is_ours(sys.stdout)
        self._flow = TextFlow(self._out)
        self._status = StatusLine(self._notes, below_text=below_text, wanted=wanted, on_break=self._flow.broken)

    def begin(self, *, of_two: bool = True) -> None:
        """Show the legend of the colours, if any, and the status line. `of_two`: a draft model may take part."""
        coloured = self._out.color_system is not None and not self._out.no_color
        if of_two and coloured and self._stream and self._out.is_terminal:
            self._out.print(legend(self._out.width))
        self._status.begin()

    def add(self, tokens: Tokens) -> None:
        """Show tokens that were committed."""
        if self._piece is not None:
            self._show_decisions(tokens, self._piece)
        self._status.wipe()
        written = ""
        for token in tokens.tokens:
            self._shown += len(token.text)
            if self._stream and token.text:
                written += self._flow.write(token.text, STYLES[token.source])
        self._status.wrote(len(tokens.tokens), written)

    def _show_decisions(self, tokens: Tokens, piece: Callable[[int], str]) -> None:
        for at, token in enumerate(tokens.tokens, tokens.position):
            if token.decision is not None:
                if not self._headed:
                    self._headed = True
                    self._notes.print(Text(_HEAD, "dim"), soft_wrap=True)
                line = Text(_decided(at, token.decision, piece), _STYLES[token.decision.verdict])
                self._notes.print(line, soft_wrap=True)

    def busy(self, what: str) -> None:
        """Show in the status line what is under way after the text."""
        self._status.busy(what)

    def close(self) -> None:
        self._status.end()

    def end(self, stats: Stats, text: str) -> None:
        """Write the rest of `text`, then the metrics."""
        self._status.end()
        if self._json:
            print(json.dumps(stats.report(text)))
            return
        self._flow.write(text[self._shown if self._stream else 0 :] + "\n")
        if self._all:
            show(stats, self._notes)
        elif self._notes.is_terminal:
            show_main(stats, self._notes)
        else:
            for line in (", ".join(headline(stats)), *resumed(stats), *notes(stats)):
                self._notes.print(Text(f"drafter: {line}"), soft_wrap=True)
