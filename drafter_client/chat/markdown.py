"""Parts a Markdown text, as it comes, into blocks that can be shown one by one.

A block ends with the blank line behind it, with a heading or a closed fence, and before a heading or a fence. Within a
fence, and within an item of a list that goes on indented, blank lines end nothing. A block keeps its line ends: the
blocks and what is open are the whole text, in its order.
"""

import re
from collections.abc import Callable, Iterable

from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Console
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

_FENCE = re.compile(r"(?P<indent> *)(?P<marks>`{3,}|~{3,})(?P<info>[^\n]*)")
_HEADING = re.compile(r" {0,3}#{1,6}(\s|$)")
_ITEM = re.compile(r" {0,3}([-+*]|\d{1,9}[.)])(\s|$)")
_INDENTED = re.compile(r" {2,}|\t")
_MOST_OUTSIDE = 3  # spaces before a fence that is in no item of a list


class BlockSplitter:
    """Takes a text in pieces of any length. The blocks do not depend on how the text is parted."""

    def __init__(self) -> None:
        self._lines = ""  # of the open block, each with its line end
        self._begun = ""  # the line that has not ended
        self._filled = False  # whether the open block has a line that is not blank
        self._fence = ""  # the marks that opened the present fence; empty: there is none
        self._list = False  # whether the open block is an item of a list, or several without blank lines between
        self._blank = False  # whether its last line is blank

    @property
    def open(self) -> str:
        """The text of the block that has not ended."""
        return self._lines + self._begun

    def feed(self, text: str) -> list[str]:
        """The blocks that end with this piece of the text."""
        *lines, begun = text.split("\n")
        blocks: list[str] = []
        for line in lines:
            blocks += self._take(self._begun + line)
            self._begun = ""
        self._begun += begun
        return blocks

    def finish(self) -> list[str]:
        """The blocks that end with the text, whose last line may have no line end."""
        line, self._begun = self._begun, ""
        blocks = self._before(line)
        self._lines += line
        return [*blocks, *self._close()]

    def _take(self, line: str) -> list[str]:
        """The blocks that end before or with a line."""
        blocks = self._before(line)
        self._lines += line + "\n"
        if self._fence:
            closed = _closes(line, self._fence)
            self._fence = "" if closed else self._fence
            return self._close() if closed and not self._list else []
        self._blank = not line.strip()
        if self._blank:
            return self._close() if self._filled and not self._list else []
        if not self._filled:
            self._filled, self._list = True, _ITEM.match(line) is not None
        fence = self._opened(line)
        if fence is not None:
            self._fence = fence["marks"]
        elif _HEADING.match(line) and not self._list:
            return [*blocks, *self._close()]
        return blocks

    def _before(self, line: str) -> list[str]:
        """The block that ends before a line, unless the line is in a fence or goes on with the block."""
        if self._fence or not self._filled or not line.strip():
            return []
        begins = self._opened(line) is not None or _HEADING.match(line) is not None
        goes_on = self._list and (_INDENTED.match(line) is not None or not (self._blank or begins))
        return [] if goes_on or not (self._list or begins) else self._close()

    def _opened(self, line: str) -> "re.Match[str] | None":
        """The fence that a line opens. Behind backticks, a further one makes the line a piece of code in a text; four
        spaces make it code, but in an item of a list."""
        found = _FENCE.match(line)
        if found is None or (found["marks"][0] == "`" and "`" in found["info"]):
            return None
        return found if self._list or len(found["indent"]) <= _MOST_OUTSIDE else None

    def _close(self) -> list[str]:
        block, self._lines = self._lines, ""
        self._filled = self._list = self._blank = False
        self._fence = ""
        return [block] if block else []


def _closes(line: str, fence: str) -> bool:
    marks = line.strip()
    return len(marks) >= len(fence) and set(marks) == {fence[0]}


_THEME = "ansi_dark"  # the terminal's own colours, without a background
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable(["image", "reference"])


def rendered(block: str, console: Console) -> list[Text]:
    """The lines of a block, without blank lines around them and without blanks at their ends. `block` must have no
    control characters but line ends."""
    markdown = Markdown("", code_theme=_THEME, hyperlinks=False)  # rich's own parser would leave out HTML
    markdown.markup, markdown.parsed = block, _PARSER.parse(block)
    for inline in (child for token in markdown.parsed for child in token.children or ()):
        if inline.type == "softbreak":  # models break lines where a line ends: in verses, in addresses
            inline.type = "hardbreak"
    lines = [_line(segments) for segments in Segment.split_lines(console.render(markdown))]
    while lines and not lines[-1]:
        lines.pop()
    first = next((at for at, line in enumerate(lines) if line), 0)
    return lines[first:]


def _line(segments: Iterable[Segment]) -> Text:
    line = Text.assemble(*((each.text, each.style or "") for each in segments if not each.control), end="")
    line.rstrip()
    return line


class Rows:
    """Follows the cursor through the rows of a block. `size`: columns and rows of the terminal at present.

    What cannot be erased for certain is left as it is: a block that is higher than the screen, or that stood there when
    the terminal got another size or something else was written in between.
    """

    def __init__(self, size: Callable[[], tuple[int, int]]) -> None:
        self._size = size
        self._broken = False
        self.begin()

    def begin(self) -> None:
        """A block begins, in a row of its own."""
        self._at_begin = self._size()
        self._broken = False
        self._rows = self._column = 0  # of the cursor, from where the block began
        self._line = 0  # the row in which the present line began

    def leave(self, *, within_line: bool) -> None:
        """The rows so far stay. `within_line`: the next block has begun already, with the present line."""
        if not within_line:
            self.begin()
            return
        self._rows, self._line = self._rows - self._line, 0

    def broken(self) -> None:
        """Something else was written between."""
        self._broken = True

    def wrote(self, text: str) -> None:
        """Move the cursor by a text, as a terminal does that wraps full rows."""
        for character in text:
            if character == "\n":
                self._rows, self._column = self._rows + 1, 0
                continue
            cells = cell_len(character)
            if self._column + cells > self._at_begin[0]:
                self._rows, self._column = self._rows + 1, 0
            self._column += cells

    def line_ended(self) -> None:
        """A line of the block has ended, and the cursor is where the next one begins."""
        self._line = self._rows

    @property
    def erasing(self) -> str | None:
        """What erases the block and puts the cursor where it began; None: it must stay."""
        if self._broken or self._size() != self._at_begin or self._rows > self._at_begin[1] - 2:  # a row is the status
            return None
        up = f"\x1b[{self._rows}A" if self._rows else ""
        return f"\r{up}\x1b[J"
