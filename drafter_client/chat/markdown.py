"""A block of Markdown as lines for the terminal. What a model writes is shown: its HTML, and where its links lead."""

from collections.abc import Iterable

from markdown_it import MarkdownIt
from rich.console import Console
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

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
