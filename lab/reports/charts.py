"""Charts as SVG, and their parts. Labels stand above the bars and lines, so a chart fits a phone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor, isfinite, log, log10, nan

from lab.reports.markup import Markup, joined, tag
from specpair.command_line.table import figure

COLOURS = 6  # of sides, in pages.css
WIDTH, LEFT, RIGHT = 360, 8, 354  # of a chart, and where its plot begins and ends


def chart(parts: Sequence[Markup], height: float, told: str) -> Markup:
    """The chart. `told`: its description for screen readers."""
    return tag("svg", tag("title", told), *parts, viewBox=f"0 0 {WIDTH} {height:.0f}", role="img")


def mark(side: int, x: float, y: float, size: float = 4.5, kind: str = "") -> Markup:
    """The mark of a side: a shape and a colour of its own. From the seventh side on, both begin again."""
    class_ = f"{colour(side)} {kind}".strip()
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


def legend(names: Sequence[str]) -> Markup:
    """The sides' marks beside their names."""
    return tag("ul", *(tag("li", legend_mark(side), name) for side, name in enumerate(names)), class_="legend")


def tick(x: float, height: float, label: str) -> Markup:
    """A line across the plot, with its label at the foot."""
    line = tag("line", x1=x, y1=0, x2=x, y2=height, class_="axis")
    return joined(line, words(label, min(max(x, 14), RIGHT - 6), height + 12, "middle soft"))


def span(side: int, begin: float, end: float, y: float) -> Markup:
    """A horizontal line between two values."""
    return tag("line", x1=begin, y1=y, x2=end, y2=y, class_=f"{colour(side)} range")


def words(text: str, x: float, y: float, kind: str) -> Markup:
    """Text. `kind`: classes of the style."""
    return tag("text", text, x=x, y=y, class_=kind)


def colour(side: int) -> str:
    """The class that has the colour of a side."""
    return f"side-{side % COLOURS}"


def round_steps(most: float) -> list[float]:
    """0 and three to six round values up to `most`, which is above 0."""
    step = 10.0 ** floor(log10(most))
    for finer in (1, 2, 5, 10):
        if most / (step / finer) >= 3:
            step /= finer
            break
    return [step * number for number in range(ceil(most / step + 1e-9)) if step * number <= most]


_ROW, _LABEL = 16, 17  # heights
_VALUES = 272  # where the plot ends and the figures beside it begin
_TICKS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0, 20.0)


def times(ratio: float) -> str:
    """A ratio with enough digits to distinguish it from 1."""
    return f"{ratio:.2f}" if abs(ratio - 1) >= 0.02 else f"{ratio:.3f}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A row of `ratios`. `side`: number of the side. `clear`: whether the interval excludes 1; None: no interval."""

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
    """Values of sides in each case, on an axis that begins at 0."""
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


_PLOT_LEFT, _TOP, _BOTTOM = 44, 8, 150  # of charts with lines
_FOOT = 30  # below a plot: ticks, and what they are

Point = tuple[float, float]  # a value that is not a number is none


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line of `lines`. `side`: whose colour it has. `low`, `high`: the ends of the values, point by point."""

    side: int
    points: Sequence[Point]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def lines(several: Sequence[ChartLine], across: str, told: str, *, shaded: float = 0.0, most: float = 0.0) -> Markup:
    """Lines over one axis, each with the band between its ends.

    `across`: what the axis has, with its unit.
    `told`: what the chart shows, for those who do not see it.
    `shaded`: up to where the beginning of the axis is shaded.
    `most`: up to where the other axis goes at least.
    """
    ends = [value for line in several for value in (*line.low, *line.high, *(y for _, y in line.points))]
    top = max([value for value in ends if isfinite(value)] + [most]) or 1.0
    last = max((x for line in several for x, _ in line.points), default=1.0) or 1.0
    top *= 1.05

    def x(value: float) -> float:
        return _PLOT_LEFT + (RIGHT - 6 - _PLOT_LEFT) * value / last

    def y(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * value / top

    parts = [_level(y(at), f"{at:g}") for at in round_steps(top)]
    parts += [tick(x(at), _BOTTOM, f"{at:g}") for at in round_steps(last)]
    if shaded:
        width = x(shaded) - _PLOT_LEFT
        parts.append(tag("rect", x=_PLOT_LEFT, y=_TOP, width=width, height=_BOTTOM - _TOP, class_="shaded"))
    for line in several:
        parts += _drawn(line, x, y)
    parts.append(words(across, RIGHT, _BOTTOM + _FOOT - 4, "right soft"))
    return chart(parts, _BOTTOM + _FOOT, told)


def _level(y: float, label: str) -> Markup:
    line = tag("line", x1=_PLOT_LEFT, y1=y, x2=RIGHT - 6, y2=y, class_="axis")
    return Markup(line + words(label, _PLOT_LEFT - 5, y + 4, "right soft"))


def _drawn(line: ChartLine, x: Callable[[float], float], y: Callable[[float], float]) -> list[Markup]:
    """A line with gaps for missing values."""
    parts = []
    rows = [*zip(line.points, line.low or [nan] * len(line.points), line.high or line.low, strict=False)]
    if line.low:
        for there, group in groupby(rows, lambda row: isfinite(row[1]) and isfinite(row[2])):
            run = [*group]
            if there and len(run) > 1:
                outline = [(at, high) for (at, _), _, high in run] + [(at, low) for (at, _), low, _ in reversed(run)]
                parts.append(tag("polygon", points=_path(outline, x, y), class_=f"{colour(line.side)} band"))
    for there, points in groupby(line.points, lambda point: isfinite(point[1])):
        if there:
            found = [*points]
            if len(found) == 1:
                parts.append(tag("circle", cx=x(found[0][0]), cy=y(found[0][1]), r=1.5, class_=colour(line.side)))
            else:
                parts.append(tag("polyline", points=_path(found, x, y), class_=f"{colour(line.side)} line"))
    return parts


def _path(points: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float]) -> str:
    return " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
