"""Charts as SVG: ratios with their intervals, and figures of sides with their percentiles.

Labels stand above what they label, so a chart is narrow enough for a phone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log, log10

from drafter_client.bench.report.page.markup import Markup, joined, tag
from drafter_client.bench.report.page.style import COLOURS
from drafter_client.bench.report.tables import figure
from drafter_client.bench.statistics.comparison import times

_WIDTH, _LEFT, _RIGHT = 360, 8, 354
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


def mark(side: int, x: float, y: float, size: float = 4.5, kind: str = "") -> Markup:
    """The mark of a side: a shape and a colour of its own. From the seventh side on, both begin again."""
    class_ = f"side-{side % COLOURS} {kind}".strip()
    shapes = {
        1: ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        2: ((0, -1.2), (1.15, 0.9), (-1.15, 0.9)),
        3: ((0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)),
        4: ((0, 1.2), (1.15, -0.9), (-1.15, -0.9)),
        5: ((-1.3, -0.5), (1.3, -0.5), (1.3, 0.5), (-1.3, 0.5)),
    }
    if (corners := shapes.get(side % COLOURS)) is None:
        return tag("circle", cx=x, cy=y, r=size, class_=class_)
    points = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in corners)
    return tag("polygon", points=points, class_=class_)


def legend_mark(side: int) -> Markup:
    """A side's mark beside its name."""
    return tag("svg", mark(side, 8, 8, 5.5), class_="mark", viewBox="0 0 16 16", aria_hidden="true")


def ratios(rows: Sequence[Ratio], told: str) -> Markup:
    """Ratios with their intervals on a logarithmic axis. A hollow mark: the interval has 1 in it, or there is none.
    `told`: what the chart shows, for those who do not see it."""
    found = [value for row in rows for value in (row.ratio, row.low, row.high) if value is not None]
    low, high = min([*found, 0.8]) / 1.05, max([*found, 1.25]) * 1.05

    def x(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * log(min(max(value, low), high) / low) / log(high / low)

    height = len(rows) * (_LABEL + _ROW) + 6
    parts = [_tick(x(at), height, f"{at:g}x") for at in _TICKS if low <= at <= high]
    parts.append(tag("line", x1=x(1), y1=0, x2=x(1), y2=height, class_="one"))
    for number, row in enumerate(rows):
        top = number * (_LABEL + _ROW)
        bounds = "" if row.low is None or row.high is None else f" ({times(row.low)} to {times(row.high)})"
        parts.append(_words(row.label, _LEFT, top + 12, "strong"))
        parts.append(_words(f"{times(row.ratio)}{bounds}", _RIGHT, top + 12, "right"))
        y = top + _LABEL + _ROW / 2 - 2
        if row.low is not None and row.high is not None:
            parts.append(_range(row.side, x(row.low), x(row.high), y))
        parts.append(mark(row.side, x(row.ratio), y, 5, "" if row.clear else "undecided"))
    return _chart(parts, height + 16, told)


def spreads(cases: Sequence[tuple[str, Sequence[Spread]]], told: str) -> Markup:
    """Figures of sides in each case, on an axis that begins at 0."""
    values = [value for _, rows in cases for row in rows for value in (row.middle, row.high)]
    most = max(values, default=0.0) or 1.0

    def x(value: float) -> float:
        return _LEFT + (_VALUES - _LEFT) * value / most

    parts, y = [], 0.0
    height = sum(_LABEL + _ROW * len(rows) for _, rows in cases) + 4
    parts += [_tick(x(at), height, f"{at:g}") for at in _round_steps(most)]
    for label, rows in cases:
        parts.append(_words(label, _LEFT, y + 12, "strong"))
        y += _LABEL
        for row in rows:
            middle = y + _ROW / 2 - 2
            parts.append(_range(row.side, x(row.low), x(row.high), middle))
            if row.stroke is not None:
                at = x(row.stroke)
                parts.append(tag("line", x1=at, y1=middle - 4, x2=at, y2=middle + 4, class_=_colour(row.side)))
            parts.append(mark(row.side, x(row.middle), middle))
            parts.append(_words(f"{figure(row.low)} to {figure(row.high)}", _RIGHT, middle + 4, "right soft"))
            y += _ROW
    return _chart(parts, height + 16, told)


def _chart(parts: Sequence[Markup], height: float, told: str) -> Markup:
    return tag("svg", tag("title", told), *parts, viewBox=f"0 0 {_WIDTH} {height:.0f}", role="img")


def _tick(x: float, height: float, label: str) -> Markup:
    line = tag("line", x1=x, y1=0, x2=x, y2=height, class_="axis")
    return joined(line, _words(label, min(max(x, 14), _RIGHT - 6), height + 12, "middle soft"))


def _range(side: int, begin: float, end: float, y: float) -> Markup:
    return tag("line", x1=begin, y1=y, x2=end, y2=y, class_=f"{_colour(side)} range")


def _words(text: str, x: float, y: float, kind: str) -> Markup:
    return tag("text", text, x=x, y=y, class_=kind)


def _colour(side: int) -> str:
    return f"side-{side % COLOURS}"


def _round_steps(most: float) -> list[float]:
    """0 and three to six round values up to `most`."""
    step = 10.0 ** floor(log10(most))
    for finer in (1, 2, 5, 10):
        if most / (step / finer) >= 3:
            step /= finer
            break
    return [step * number for number in range(ceil(most / step + 1e-9)) if step * number <= most]
