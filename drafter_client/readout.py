"""What a person or a program sees of a run: text while it comes, then figures or one JSON object."""

import json
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from drafter_client.generation import Tokens
from drafter_client.panel import STYLES, legend, show
from drafter_client.stats import Stats
from drafter_client.verbose import Reasons
from speculation.terminal_text import several_lines


class Readout:
    """Text goes to standard output, everything else to standard error, so that a pipe gets the text alone."""

    def __init__(self, *, as_json: bool, stream: bool, piece: Callable[[int], str] | None = None) -> None:
        """`piece`: the text of a token, to show the decision on each instead of streaming the text."""
        self._json, self._stream = as_json, stream and not as_json and piece is None
        self._out = Console(markup=False, highlight=False, soft_wrap=True)
        self._notes = Console(stderr=True, markup=False, highlight=False)
        self._reasons = None if piece is None or as_json else Reasons(piece, self._notes)
        self._shown = 0  # characters of the text

    def begin(self) -> None:
        """Explain the colours where there are any."""
        if self._stream and self._out.is_terminal:
            self._out.print(legend(self._out.width))

    def add(self, news: Tokens) -> None:
        """Show committed tokens."""
        if self._reasons is not None:
            self._reasons.show(news.position, news.tokens)
        for token in news.tokens:
            self._shown += len(token.text)
            if self._stream and token.text:
                self._write(token.text, STYLES[token.origin])

    def end(self, stats: Stats, text: str) -> None:
        """Show the rest of `text`, then the figures."""
        if self._json:
            print(json.dumps(stats.report(text)))
            return
        self._write(text[self._shown if self._stream else 0 :] + "\n", "")
        show(stats, self._notes)

    def _write(self, text: str, style: str) -> None:
        if self._out.is_terminal:
            self._out.print(Text(several_lines(text), style), end="")
        else:  # to the letter: rich would expand tabs and drop carriage returns
            self._out.file.write(text)
        self._out.file.flush()
