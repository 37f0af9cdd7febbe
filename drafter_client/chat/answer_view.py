"""Shows an answer as it arrives: finished blocks as Markdown, the open block as text, and a status line below."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console

from drafter_client.chat.markdown import BlockSplitter, Rows, rendered
from drafter_client.display.panel import STYLES
from drafter_client.display.readout import TAB, TextFlow
from drafter_client.display.status_line import StatusLine, may_share_rows, screen_is_ours
from drafter_client.generation.generation import Token
from gateway.openai_api.answer import Markers, ThoughtReader
from gateway.openai_api.detokenizer import Detokenizer
from specpair.engines.vocabulary import Vocabulary
from specpair.protocol.terminal_text import several_lines
from specpair.speculation.acceptance.token_sources import TokenSource

_TAIL = 16  # tokens of a prompt, which hold a marker that it ends with


class AnswerPart(NamedTuple):
    """A part of an answer. `thought`: part of the thoughts. `source`: the token's; None: the text's end."""

    text: str
    thought: bool
    source: TokenSource | None


class AnswerText:
    """Collects the tokens of one answer. `thoughts` and `said`: its text so far, without markers."""

    def __init__(self, markers: Markers, *, begun: bool) -> None:
        """`begun`: whether the prompt has begun the thoughts."""
        self._reader = ThoughtReader(markers, begun=begun)
        self._read = 0  # characters
        self.thoughts = self.said = ""

    def take(self, tokens: Sequence[Token]) -> list[AnswerPart]:
        """The parts that these tokens add. Characters that may belong to a marker are held back."""
        self._read += sum(len(token.text) for token in tokens)
        return [part for token in tokens for part in self._parts(*self._reader.feed(token.text), token.source)]

    def finish(self, text: str) -> list[AnswerPart]:
        """The parts that were held back. `text`: the whole answer, which may end with characters of no token so far."""
        rest = self._reader.feed(text[self._read :])
        return [*self._parts(*rest, None), *self._parts(*self._reader.finish(), None)]

    def _parts(self, thoughts: str, said: str, source: TokenSource | None) -> list[AnswerPart]:
        self.thoughts, self.said = self.thoughts + thoughts, self.said + said
        return [AnswerPart(text, thought, source) for text, thought in ((thoughts, True), (said, False)) if text]


def begins_thoughts(prompt_ids: Sequence[int], vocabulary: Vocabulary, markers: Markers) -> bool:
    shown = Detokenizer(vocabulary, shown=markers.texts)
    return "".join(map(shown.feed, prompt_ids[-_TAIL:])).rstrip().endswith(markers.begin)


class AnswerView:
    """Writes one answer to standard output: unchanged through a pipe; with control characters escaped on a terminal.

    A terminal that can move its cursor shows Markdown: the view streams a block as plain text, and
    replaces a finished block by its Markdown. A terminal shows thoughts dim; a pipe gets no thoughts.
    """

    def __init__(self, out: Console, notes: Console, *, markdown: bool, sources: bool) -> None:
        """`out`, `notes`: standard output and standard error.
        `markdown`: show Markdown, where the terminal can.
        `sources`: colour the answer by token source, without Markdown.
        """
        self._out, self._sources, self._flow = out, sources, TextFlow(out)
        self._blocks = BlockSplitter() if markdown and self._flow.moves and not sources else None
        self._rows = Rows(lambda: (out.width, out.height))
        self._streamed = 0  # characters of the open block that are written
        self._thinking = False  # whether the part written last is a thought
        self._within_row = False
        self._parted = True  # whether the last row is blank, or there is none
        wanted = self._flow.moves and screen_is_ours(out.file)
        below = may_share_rows(out.file, notes.file)
        self._status = StatusLine(notes, below_text=below, wanted=wanted, on_break=self._on_break)
        self._status.begin()

    def add(self, parts: Sequence[AnswerPart], tokens: int = 0) -> None:
        self._status.wipe()
        written = "".join(self._think(part.text) if part.thought else self._say(part) for part in parts)
        self._status.wrote(tokens, written)

    def close(self) -> None:
        self._status.end()
        for block in self._blocks.finish() if self._blocks is not None else []:
            self._end_block(block)
        if self._within_row:
            self._stream("\n")
        if not self._parted:
            self._stream("\n")
        self._out.file.flush()

    def _on_break(self) -> None:
        self._flow.broken()
        self._rows.broken()
        self._within_row = False

    def _think(self, text: str) -> str:
        if not self._out.is_terminal:
            return ""
        named, self._thinking = "" if self._thinking else "thoughts: ", True
        return self._stream(named + text, "dim")

    def _say(self, part: AnswerPart) -> str:
        """Write a part of the answer behind the thoughts. Returns the text that it added to the terminal."""
        written = ""
        if self._thinking:
            self._thinking = False
            written = self._stream("\n\n")
            self._rows.begin()
        if self._blocks is None:
            style = "" if part.source is None or not self._sources else str(STYLES[part.source])
            return written + self._stream(part.text, style)
        written += "".join(map(self._end_block, self._blocks.feed(several_lines(part.text).expandtabs(TAB))))
        begun = self._blocks.open
        if not begun.strip():  # blank lines before a block say nothing
            return written
        rest = begun[self._streamed :] if self._streamed else begun.lstrip("\n")
        self._streamed = len(begun)
        return written + self._stream(rest)

    def _end_block(self, block: str) -> str:
        """Replace the text of a finished block by its Markdown, or write the rest of its text."""
        rest, self._streamed = block[self._streamed :], max(0, self._streamed - len(block))
        erasing = self._rows.erasing
        if erasing is None:
            written = self._stream(rest)
            self._rows.leave(within_line=self._streamed > 0)
            return written
        self._out.file.write(erasing)
        self._flow.broken()
        self._streamed = 0
        lines = rendered(block, self._out)
        for line in lines:
            self._out.print(line, soft_wrap=True)
        if lines:
            self._out.file.write("\n")
            self._parted = True
        self._within_row = False
        self._rows.begin()
        return "\n"

    def _stream(self, text: str, style: str = "") -> str:
        """Write text as it is. Returns what was written."""
        whole = ""
        for line in text.splitlines(keepends=True):
            written = self._flow.write(line, style)
            self._rows.wrote(written)
            if line.endswith("\n"):
                self._rows.line_ended()
            whole += written
        if text:
            self._within_row, self._parted = not text.endswith("\n"), False
        return whole
