"""Compares ways to generate the same texts: medians with quartiles, and ratios to the target alone, text by text.

Machines and networks drift. So each text is compared with that of the target alone on the same prompt in the same run.
One way counts as faster than another by the share of texts that it generated faster.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

from drafter_client.errors import NoPicture
from drafter_client.options import Mode
from drafter_client.statistics import Stats
from specpair.extras import installing
from specpair.quantile import quantile

TARGET = "target"
AUTO = "auto"  # the way in mode `auto`, which chooses among the others: it is not ranked with them
_CLOSE = 0.7  # the share of texts that a way must generate faster than another to count as faster


@dataclass(frozen=True, slots=True)
class Way:
    """A way to generate a text. `draft_n`: draft tokens a round; None: chosen automatically."""

    name: str
    mode: Mode
    draft_n: int | None = None


def ways(modes: Sequence[Mode], lengths: Sequence[int]) -> list[Way]:
    """The ways to compare: the target alone, then, if in `modes`, fused, and remote with each fixed draft length of
    `lengths` and with automatic ones."""
    found = [Way(TARGET, Mode.TARGET)]
    if Mode.FUSED in modes:
        found.append(Way("fused", Mode.FUSED))
    if Mode.REMOTE in modes:
        found += [Way(f"remote k={length}", Mode.REMOTE, length) for length in lengths]
        found.append(Way("remote", Mode.REMOTE))
    return found


def shuffled(of: Sequence[Way], run: int, prompt: int) -> list[Way]:
    """The ways in an order drawn for this run and prompt (numbers from 0), so that no way always comes first."""
    order = list(of)
    Random(f"{run} {prompt}").shuffle(order)
    return order


class WayResult(NamedTuple):
    """One text: the result of one way for one prompt in one run. `run` and `prompt` are numbers from 0."""

    way: str
    kind: str
    run: int
    prompt: int
    token_ids: tuple[int, ...]
    tokens_per_second: float
    ttft_ms: float
    drafted: int
    accepted: int


def text_of(way: str, kind: str, run: int, prompt: int, stats: Stats) -> WayResult:
    """The result of a way, from the statistics of its text."""
    return WayResult(
        way,
        kind,
        run,
        prompt,
        token_ids=tuple(stats.token_ids),
        tokens_per_second=stats.tokens_per_second or 0.0,
        ttft_ms=stats.ttft_ms,
        drafted=stats.drafted,
        accepted=stats.accepted,
    )


@dataclass(frozen=True, slots=True)
class ComparedWay:
    """The results of one way for one kind of prompts. Rates are in tokens per second."""

    way: str
    texts: int
    rate: float  # median
    low: float  # lower quartile of the rates
    high: float  # upper quartile of the rates
    ratio: float  # rate of a text divided by that of the target alone, median over texts
    ttft_ms: float  # median
    acceptance: float | None  # acceptance rate, 0 to 1; None: no draft token was judged
    same: int  # texts equal to the target's, token by token


@dataclass(frozen=True, slots=True)
class WayComparison:
    """The results of all ways, in the order of the texts, for one kind of prompts or for all."""

    kind: str
    rows: list[ComparedWay]
    best: str  # the way with the highest ratio, `auto` left out
    second: str | None  # the way with the next highest ratio, if any
    won: int  # texts that `best` generated faster than `second` did
    texts: int  # of each way

    @property
    def clear(self) -> bool:
        """Whether `best` beat `second` in enough texts (`_CLOSE`); else another run might rank them the other way."""
        return self.second is None or self.won >= _CLOSE * self.texts


def table(kind: str, texts: Sequence[WayResult]) -> WayComparison:
    """Compare `texts`. Every way must have those of the same prompts and runs, and `target` must be among the ways."""
    names = list(dict.fromkeys(text.way for text in texts))
    by_way = {name: {(text.kind, text.prompt, text.run): text for text in texts if text.way == name} for name in names}
    alone = by_way[TARGET]
    rows = [_row(name, by_way[name], alone) for name in names]
    ranked = sorted((row for row in rows if row.way != AUTO), key=lambda row: row.ratio, reverse=True)
    second = ranked[1].way if len(ranked) > 1 else None
    won = 0
    if second is not None:
        best_texts, others = by_way[ranked[0].way], by_way[second]
        won = sum(best_texts[key].tokens_per_second > others[key].tokens_per_second for key in alone)
    return WayComparison(kind, rows, ranked[0].way, second, won, len(alone))


def _row(
    name: str, texts: dict[tuple[str, int, int], WayResult], alone: dict[tuple[str, int, int], WayResult]
) -> ComparedWay:
    rates = [text.tokens_per_second for text in texts.values()]
    drafted = sum(text.drafted for text in texts.values())
    return ComparedWay(
        way=name,
        texts=len(texts),
        rate=median(rates),
        low=quantile(rates, 0.25),
        high=quantile(rates, 0.75),
        ratio=median(text.tokens_per_second / alone[key].tokens_per_second for key, text in texts.items()),
        ttft_ms=median(text.ttft_ms for text in texts.values()),
        acceptance=sum(text.accepted for text in texts.values()) / drafted if drafted else None,
        same=sum(text.token_ids == alone[key].token_ids for key, text in texts.items()),
    )


def draw(tables: Sequence[WayComparison], title: str, path: Path) -> None:
    """Write a PNG with one plot for each table. Raises NoPicture if that is not possible."""
    figure = new_figure(title, 4.8 * len(tables), 1.2 + 0.32 * len(tables[0].rows), NoPicture)
    for axes, table in zip(figure.subplots(1, len(tables), squeeze=False)[0], tables, strict=True):
        _plot(axes, table)
    save(figure, path, NoPicture)


def _plot(axes: Any, table: WayComparison) -> None:
    rows = table.rows
    positions = range(len(rows))
    colours = ["tab:green" if row.way == table.best else "tab:blue" for row in rows]
    axes.hlines(
        positions, [row.low for row in rows], [row.high for row in rows], colors=colours, linewidth=5, alpha=0.35
    )
    axes.scatter([row.rate for row in rows], positions, c=colours, zorder=3)
    for position, row in zip(positions, rows, strict=True):
        axes.annotate(f"{row.ratio:.2f}x", (row.high, position), (6, -3), textcoords="offset points", fontsize=8)
    axes.set_yticks(positions, [row.way for row in rows])
    axes.invert_yaxis()
    axes.set(
        title=table.kind,
        xlabel="tokens/s: median, quartiles, times the target",
        xlim=(0, 1.2 * max(row.high for row in rows)),
    )


def new_figure(title: str, width: float, height: float, missing: Callable[[str], Exception]) -> Any:
    """A Figure of matplotlib, of so many inches. Raises `missing` with a message, if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise missing(f"PNGs need matplotlib: {installing('plots')}") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, fontsize=10, parse_math=False)
    return figure


def save(figure: Any, path: Path, failed: Callable[[str], Exception]) -> None:
    """Write a figure as PNG. Raises `failed` with a message, if the file cannot be written."""
    try:
        figure.savefig(path, dpi=110, format="png")
    except OSError as error:
        raise failed(f"the picture {path} cannot be written: {error.strerror or error}") from None
