"""The readout's look: the colours of a text by origin, and the panel of figures at the end."""

from itertools import zip_longest

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from drafter_client.figures import Row, bars, columns, couples, lines, note, title
from drafter_client.origin import Origin
from drafter_client.pace import means, sparkline
from drafter_client.stats import Stats

_WIDEST = 60  # signs of a bar or a line
_FRAME = 4  # columns of the panel's border
_SIDE_BY_SIDE = 76  # columns of a terminal from which on two figures go into a row
STYLES = {Origin.ACCEPTED: "green", Origin.CORRECTION: "yellow", Origin.FREE: "cyan", Origin.OWN: "blue"}
_COLOURS = {"prefill": "magenta", "drafting": "green", "network": "yellow", "queue": "red"}
_NOTHING = ("", "")
_COMPARED = {
    True: "same text",
    False: "the text differs, most likely after a near-tie (README: near-ties)",
    None: "another text, as by this strategy it may be",
}
_MEANINGS = {
    Origin.ACCEPTED: "accepted draft",
    Origin.CORRECTION: "correction by the target",
    Origin.FREE: "free token of the target",
    Origin.OWN: "its own, unasked",
}


def legend(width: int = 100) -> Text:
    """What explains the colours: one line, or more where the terminal has no room for that."""
    text, used = Text(), 0
    for origin, meaning in _MEANINGS.items():
        size = len(meaning) + 2
        gap = "" if not used else "   " if used + 3 + size <= width else "\n"
        used = size if gap in ("", "\n") else used + 3 + size
        text.append(gap).append("■ ", STYLES[origin]).append(meaning, "dim")
    return text


def show(stats: Stats, console: Console) -> None:
    """Print the panel."""
    parts: list[RenderableType] = [
        _pairs(stats, console.width >= _SIDE_BY_SIDE),
        *_lines(stats),
        Text(),
        _times(stats, console.width),
    ]
    parts += [*_tokens(stats, console.width), *_notes(stats), *_baseline(stats)]
    console.print(Panel(Group(*parts), title=Text(title(stats)), border_style="blue", expand=False))


def _pairs(stats: Stats, side_by_side: bool) -> Table:
    left, right = columns(stats)
    rows: list[tuple[str, ...]]
    if side_by_side:
        rows = [(*one, *other) for one, other in [*zip_longest(left, right, fillvalue=_NOTHING), *couples(stats)]]
    else:
        rows = [*left, *right, *(row for couple in couples(stats) for row in couple)]
    table = Table.grid(padding=(0, 3))
    for _ in range(0, len(rows[0]), 2):
        table.add_column(justify="left", style="dim")
        table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _lines(stats: Stats) -> list[Table]:
    rows = lines(stats)
    return [_grid(rows)] if rows else []


def _grid(rows: list[Row]) -> Table:
    table = Table.grid(padding=(0, 3))
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    return table


def _times(stats: Stats, width: int) -> Table:
    """Where the time went, as bars: a share of the whole each, and more than that where much was under way at once."""
    total = max(stats.total_ms, 1e-9)
    rows = [(name, f"{value:.0f} ms", value / total) for name, value in bars(stats)]
    taken = sum(max(map(len, cells)) + 2 for cells in zip(*[(*row[:2], f"{row[2]:.0%}") for row in rows], strict=True))
    table = Table.grid(padding=(0, 2))
    for name, value, share in rows:
        length = min(round(30 * share), _WIDEST, max(1, width - _FRAME - taken))
        table.add_row(Text(name, "dim"), value, f"{share:.0%}", Text("█" * length, _COLOURS.get(name, "blue")))
    return table


def _tokens(stats: Stats, width: int) -> list[Text]:
    """The time of a token along the text; the first is left out, whose time is the prompt's."""
    label = "ms a token   "
    scale = means(stats.token_ms[1:], min(_WIDEST, max(8, width - _FRAME - len(label) - 12)))
    if not scale:
        return []
    line = Text("\n" + label, "dim").append(sparkline(scale), "blue")
    return [line.append(f"   0 to {max(scale):.1f}", "dim")]


def _notes(stats: Stats) -> list[Text]:
    said = note(stats)
    return [] if said is None else [Text("\n" + said, "yellow")]


def _baseline(stats: Stats) -> list[Text]:
    baseline = stats.baseline
    if baseline is None or stats.speed_up is None:
        return []
    line = Text("\ntarget alone, measured  ", "dim")
    line.append(f"{baseline.tokens_per_second:.1f} tokens/s", "default")
    line.append(f"   TTFT {baseline.ttft_ms:.0f} ms", "default")
    line.append("   speed-up  ", "dim").append(f"{stats.speed_up:.2f}x", "bold")
    return [line, Text(_COMPARED[baseline.same_tokens], "dim")]
