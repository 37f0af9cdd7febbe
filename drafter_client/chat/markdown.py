"""Splits Markdown text, as it arrives, into blocks to be shown one by one.

Blocks keep their line ends: joined, with the open block last, they are the whole text.
"""

from collections.abc import Callable, Iterable
from io import StringIO
from itertools import pairwise

from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Console
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

_PROBE = "x\n"  # a line that goes on with every block that has not ended, but with those below
_MAY_GO_ON = ("bullet_list_open", "ordered_list_open", "code_block")  # with an indented line


class BlockSplitter:
    """Takes a text in chunks of any length. The lengths of the chunks do not affect the blocks.

    The text must have no control characters but line ends.
    """

    def __init__(self) -> None:
        self._lines = ""  # of the open block, each with its line end
        self._begun = ""  # the line that has not ended

    @property
    def open(self) -> str:
        return self._lines + self._begun

    def feed(self, text: str) -> list[str]:
        """The blocks that end with this piece of the text."""
        *lines, begun = text.split("\n")
        blocks: list[str] = []
        for line in lines:
            ended, self._lines = _split(f"{self._lines}{self._begun}{line}\n", _PROBE)
            blocks += ended
            self._begun = ""
        self._begun += begun
        return blocks

    def finish(self) -> list[str]:
        """The blocks that end with the text, whose last line may have no line end."""
        blocks, rest = _split(self.open)
        self._lines = self._begun = ""
        return [*blocks, rest] if rest else blocks


def _split(text: str, probe: str = "") -> tuple[list[str], str]:
    """The blocks of `text` that have ended, and the rest. Items of a list with blank lines between are blocks, too.

    `probe`: a line that is parsed behind the text; if it begins a block, all blocks of the text have ended.
    """
    lines = list(StringIO(text))
    edges: list[int] = []
    before = ""
    for token in _BLOCKS.parse(text + probe):
        if token.map is None or token.nesting < 0:
            continue
        at = token.map[0]
        item = token.type == "list_item_open" and token.level == 1 and at > 0 and not lines[at - 1].strip()
        if item or (token.level == 0 and not (at == len(lines) and before in _MAY_GO_ON)):
            edges.append(at)
            before = before if item else token.type
    edges = [0, *edges[1:]]
    blocks = ["".join(lines[begin:end]) for begin, end in pairwise(edges)]
    return blocks, "".join(lines[edges[-1] :])


_THEME = "ansi_dark"  # the terminal's own colours, without a background
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable(["image", "reference"])
_BLOCKS = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["reference", "inline"])


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

    A block stays if erasing it is unsafe: the block is higher than the screen, the terminal was resized meanwhile, or
    other text was written in between.
    """

    def __init__(self, size: Callable[[], tuple[int, int]]) -> None:
        self._size = size
        self._broken = False
        self.begin()

    def begin(self) -> None:
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
        self._line = self._rows

    @property
    def erasing(self) -> str | None:
        """Control sequence that erases the block, back to its start; None: it stays."""
        if self._broken or self._size() != self._at_begin or self._rows > self._at_begin[1] - 2:  # a row is the status
            return None
        up = f"\x1b[{self._rows}A" if self._rows else ""
        return f"\r{up}\x1b[J"
