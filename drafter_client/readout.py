"""What a person or a program sees of a run: text while it comes, then figures or one JSON object."""

import json
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from backends.vocabulary import Vocabulary
from drafter_client.loop import Origin
from drafter_client.panel import STYLES, legend, show
from drafter_client.stats import Stats
from drafter_client.text import TextStream


class Readout:
    """Text goes to standard output, everything else to standard error, so that a pipe gets the text alone."""

    def __init__(self, vocabulary: Vocabulary, *, as_json: bool, stream: bool) -> None:
        self._json, self._stream = as_json, stream and not as_json
        self._decoder = TextStream(vocabulary)
        self._out = Console(highlight=False, soft_wrap=True)
        self._notes = Console(stderr=True, highlight=False)
        self._pieces: list[str] = []

    def begin(self) -> None:
        """Explain the colours where there are any."""
        if self._stream and self._out.is_terminal:
            self._out.print(legend())

    def add(self, tokens: Iterable[tuple[int, Origin]]) -> None:
        """Show committed tokens."""
        for token, origin in tokens:
            self._emit(self._decoder.feed(token), STYLES[origin])

    def end(self, stats: Stats) -> None:
        """Show the rest of the text, then the figures."""
        self._emit(self._decoder.finish(), "")
        text = "".join(self._pieces)
        if self._json:
            print(json.dumps(stats.report(text)))
            return
        self._write("\n" if self._stream else text + "\n", "")
        show(stats, self._notes)

    def _emit(self, piece: str, style: str) -> None:
        self._pieces.append(piece)
        if self._stream and piece:
            self._write(piece, style)

    def _write(self, text: str, style: str) -> None:
        if self._out.is_terminal:
            self._out.print(Text(text, style), end="")
        else:  # to the letter: rich would expand tabs and drop carriage returns
            self._out.file.write(text)
        self._out.file.flush()
