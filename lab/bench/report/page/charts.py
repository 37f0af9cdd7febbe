"""Charts as SVG: ratios with their intervals, and figures of sides with their percentiles."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from lab.bench.statistics.comparison import times
from lab.reports.markup import Markup, tag
from lab.reports.svg import LEFT, RIGHT, chart, colour, mark, round_steps, span, tick, words
from specpair.command_line.table import figure

_ROW, _LABEL = 16, 17  # heights
_VALUES = 272  # where the plot ends and the figures beside it begin
_TICKS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A row of `ratios`. `side`: number of the side. `clear`: whether the interval leaves 1 out; None: no interval."""

    label: str
    side: int
    ratio: float
    low: float | None
    high: float | None

    @property
    def clear(self) -> bool:
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


@dataclass(frozen=True, slots=True)
class Spread:
    """A row of `spreads`: the mark, the ends of the line, and the stroke across it (None: there is none)."""

    side: int
    middle: float
    low: float
    high: float
    stroke: float | None


def ratios(rows: Sequence[Ratio], told: str) -> Markup:
    """Ratios with their intervals on a logarithmic axis. A hollow mark: the interval has 1 in it, or there is none.
    `told`: what the chart shows, for those who do not see it."""
    found = [value for row in rows for value in (row.ratio, row.low, row.high) if value is not None]
    low, high = min([*found, 0.8]) / 1.05, max([*found, 1.25]) * 1.05

    def x(value: float) -> float:
        return LEFT + (RIGHT - LEFT) * log(min(max(value, low), high) / low) / log(high / low)

    height = len(rows) * (_LABEL + _ROW) + 6
    parts = [tick(x(at), height, f"{at:g}x") for at in _TICKS if low <= at <= high]
    parts.append(tag("line", x1=x(1), y1=0, x2=x(1), y2=height, class_="one"))
    for number, row in enumerate(rows):
        top = number * (_LABEL + _ROW)
        bounds = "" if row.low is None or row.high is None else f" ({times(row.low)} to {times(row.high)})"
        parts.append(words(row.label, LEFT, top + 12, "strong"))
        parts.append(words(f"{times(row.ratio)}{bounds}", RIGHT, top + 12, "right"))
        y = top + _LABEL + _ROW / 2 - 2
        if row.low is not None and row.high is not None:
            parts.append(span(row.side, x(row.low), x(row.high), y))
        parts.append(mark(row.side, x(row.ratio), y, 5, "" if row.clear else "undecided"))
    return chart(parts, height + 16, told)


def spreads(cases: Sequence[tuple[str, Sequence[Spread]]], told: str) -> Markup:
    """Figures of sides in each case, on an axis that begins at 0."""
    values = [value for _, rows in cases for row in rows for value in (row.middle, row.high)]
    most = max(values, default=0.0) or 1.0

    def x(value: float) -> float:
        return LEFT + (_VALUES - LEFT) * value / most

    parts, y = [], 0.0
    height = sum(_LABEL + _ROW * len(rows) for _, rows in cases) + 4
    parts += [tick(x(at), height, f"{at:g}") for at in round_steps(most)]
    for label, rows in cases:
        parts.append(words(label, LEFT, y + 12, "strong"))
        y += _LABEL
        for row in rows:
            middle = y + _ROW / 2 - 2
            parts.append(span(row.side, x(row.low), x(row.high), middle))
            if row.stroke is not None:
                at = x(row.stroke)
                parts.append(tag("line", x1=at, y1=middle - 4, x2=at, y2=middle + 4, class_=colour(row.side)))
            parts.append(mark(row.side, x(row.middle), middle))
            parts.append(words(f"{figure(row.low)} to {figure(row.high)}", RIGHT, middle + 4, "right soft"))
            y += _ROW
    return chart(parts, height + 16, told)
