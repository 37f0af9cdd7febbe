"""The panels of metrics at the end of a run, and the colours of a text by token source."""

from collections.abc import Iterable, Sequence
from itertools import pairwise, zip_longest
from statistics import fmean

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from drafter_client.display import panel_rows
from drafter_client.display.panel_rows import SOURCES, bars, compared, couples, hints, notes
from drafter_client.statistics import Stats
from specpair.numbers import percentages
from specpair.speculation.acceptance.token_sources import TokenSource

_WIDEST = 60  # characters of the latency line, at most
_GAP = "   "  # between two metrics in a line
_NARROW = 76  # columns of a line of main metrics, at most: longer lines are hard to read
_FRAME = 4  # columns of the panel's border
_SIDE_BY_SIDE = 76  # columns that a terminal needs for two metrics in a row
STYLES = {
    TokenSource.ACCEPTED: "green",
    TokenSource.RECOVERED: "yellow",
    TokenSource.BONUS: "cyan",
    TokenSource.TARGET_DECODED: "blue",
    TokenSource.HEAD: "bright_blue",
    TokenSource.FORCED: "magenta",
}
_COLOURS = {"prefill": "magenta", "drafting": "green", "network": "yellow", "queue": "red", "other": "white"}
_LEVELS = "▁▂▃▄▅▆▇█"


def legend(width: int = 100) -> Text:
    """The legend of the colours: one line, or more on a narrow terminal."""
    return _wrapped((Text("■ ", STYLES[source]).append(name, "dim") for source, name in SOURCES.items()), width)


def _wrapped(parts: Iterable[Text], width: int) -> Text:
    """The parts side by side, in as many lines as they need on `width` columns; no part is split."""
    text, used = Text(), 0
    for part in parts:
        fits = used + len(_GAP) + len(part) <= width
        text.append("" if not used else _GAP if fits else "\n").append_text(part)
        used = used + len(_GAP) + len(part) if used and fits else len(part)
    return text


def show(stats: Stats, console: Console) -> None:
    lines = Table.grid(padding=(0, 3))
    lines.add_column(style="dim")
    for row in panel_rows.lines(stats):
        lines.add_row(*row)
    parts: list[RenderableType] = [_pairs(stats, console.width >= _SIDE_BY_SIDE)]
    parts += [lines] if lines.rows else []
    parts += [Text("\nwhat the text waited for", "dim"), _times(stats, console.width), *_tokens(stats, console.width)]
    parts += [*(Text("\n" + said, "yellow") for said in notes(stats)), *_baseline(stats)]
    _print(stats, console, parts, None)


def show_main(stats: Stats, console: Console) -> None:
    metrics = _wrapped(map(Text, panel_rows.headline(stats)), min(_NARROW, console.width - _FRAME))
    differs = stats.baseline is not None and stats.baseline.same_tokens is False
    said = [*panel_rows.resumed(stats), *notes(stats), *([compared(stats) or ""] if differs else [])]
    _print(stats, console, [metrics, *(Text(each, "yellow") for each in said)], Text("all: --stats", "dim"))


def _print(stats: Stats, console: Console, parts: list[RenderableType], below: Text | None) -> None:
    whole, title = Group(*parts, *(Text(hint, "dim") for hint in hints(stats))), Text(panel_rows.title(stats))
    console.print(Panel(whole, title=title, subtitle=below, subtitle_align="right", border_style="blue", expand=False))


def _pairs(stats: Stats, side_by_side: bool) -> Table:
    left, right = panel_rows.columns(stats)
    rows: list[tuple[str, ...]] = [*left, *right, *(row for couple in couples(stats) for row in couple)]
    if side_by_side:
        rows = [(*one, *other) for one, other in [*zip_longest(left, right, fillvalue=("", "")), *couples(stats)]]
    table = Table.grid(padding=(0, 3))
    for _ in range(0, len(rows[0]), 2):
        table.add_column(justify="left", style="dim")
        table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _times(stats: Stats, width: int) -> Table:
    """What the text waited for, as bars: shares that add up to 100%."""
    parts = bars(stats)
    shares = percentages(value for _, value in parts)
    rows = [
        (name, f"{1e3 * value:.0f} ms", f"{share}%", share) for (name, value), share in zip(parts, shares, strict=True)
    ]
    taken = sum(max(map(len, cells)) + 2 for cells in zip(*(row[:3] for row in rows), strict=True))
    table = Table.grid(padding=(0, 2))
    for name, value, percent, share in rows:
        length = min(round(0.3 * share), max(1, width - _FRAME - taken))
        table.add_row(Text(name, "dim"), value, percent, Text("█" * length, _COLOURS.get(name, "blue")))
    return table


def _tokens(stats: Stats, width: int) -> list[Text]:
    """The inter-token latencies along the text; averages of neighbours, where one line cannot show each."""
    latencies = stats.token_ms[1:]
    if not latencies:
        return []
    label, longest = "ms a token   ", f"   averages: 0 to {max(latencies):.1f}"
    shown = means(latencies, min(_WIDEST, max(8, width - _FRAME - len(label) - len(longest))))
    averages = "averages: " if len(shown) < len(latencies) else ""
    line = Text("\n" + label, "dim").append(sparkline(shown), "blue")
    return [line.append(f"   {averages}0 to {max(shown):.1f}", "dim")]


def means(values: Sequence[float], most: int) -> list[float]:
    """Split `values`, in order, into at most `most` bins of nearly equal size; return the mean of each bin."""
    bins = min(len(values), most)
    edges = [len(values) * at // bins for at in range(bins + 1)] if bins else []
    return [fmean(values[low:high]) for low, high in pairwise(edges)]


def sparkline(values: Sequence[float]) -> str:
    """One block character for each of `values`, its height proportional to the value. No value may be negative."""
    greatest = max(values, default=0.0) or 1.0
    return "".join(_LEVELS[min(len(_LEVELS) - 1, int(len(_LEVELS) * value / greatest))] for value in values)


def _baseline(stats: Stats) -> list[Text]:
    baseline = stats.baseline
    if baseline is None or baseline.tokens_per_second is None or stats.speed_up is None:
        return []
    line = Text("\ntarget alone, measured  ", "dim")
    line.append(f"{baseline.tokens_per_second:.1f} tokens/s", "default")
    line.append(f"   TTFT {baseline.ttft_ms:.0f} ms", "default")
    line.append("   speed-up  ", "dim").append(f"{stats.speed_up:.2f}x", "bold")
    return [line, Text(compared(stats) or "", "dim")]
