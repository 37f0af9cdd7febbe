"""Charts of a simulation as SVG: lines over time, and a measure over the values of a key."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from lab.reports.document import charted
from lab.reports.markup import Markup, joined, tag
from lab.reports.svg import RIGHT, chart, colour, legend, mark, round_steps, tick, words
from lab.simulator.results.measures import Estimate, RunMeasure

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


def lines(
    several: Sequence[ChartLine], across: str, told: str, *, shaded: float = 0.0, most: float = 0.0, marks: bool = False
) -> Markup:
    """Lines over one axis, each with the band between its ends.

    `across`: what the axis has, with its unit.
    `told`: what the chart shows, for those who do not see it.
    `shaded`: up to where the beginning of the axis is shaded.
    `most`: up to where the other axis goes at least.
    `marks`: whether each point has the mark of its side, with the ends as a line.
    """
    ends = [value for line in several for value in (*line.low, *line.high, *(y for _, y in line.points))]
    top = max([value for value in ends if math.isfinite(value)] + [most]) or 1.0
    last = max((x for line in several for x, _ in line.points), default=1.0) or 1.0
    top, last = top * 1.05, last if not marks else last * 1.04

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
        parts += _marked(line, x, y) if marks else _drawn(line, x, y)
    parts.append(words(across, RIGHT, _BOTTOM + _FOOT - 4, "right soft"))
    return chart(parts, _BOTTOM + _FOOT, told)


def over_key(measure: RunMeasure, key: str, several: Mapping[str, Mapping[float, Estimate]]) -> Markup:
    """A measure over the values of a key, such as the number of drafters, with its intervals.

    `several`: lines by their names, which a legend shows if there is more than one.
    """

    def end(value: float | None) -> float:
        return math.nan if value is None else measure.scale * value

    drawn = []
    for side, values in enumerate(several.values()):
        found = sorted(values.items())
        points = [(value, measure.scale * each.mean) for value, each in found]
        drawn.append(
            ChartLine(side, points, [end(each.low) for _, each in found], [end(each.high) for _, each in found])
        )
    curves = lines(drawn, key, f"{measure.caption} over {key}", marks=True)
    figure = charted(measure.caption, measure.meaning, curves)
    return joined(legend([*several]), figure) if len(several) > 1 else figure


def _level(y: float, label: str) -> Markup:
    line = tag("line", x1=_PLOT_LEFT, y1=y, x2=RIGHT - 6, y2=y, class_="axis")
    return Markup(line + words(label, _PLOT_LEFT - 5, y + 4, "right soft"))


def _drawn(line: ChartLine, x: Callable[[float], float], y: Callable[[float], float]) -> list[Markup]:
    """Where a value is missing, the line has a gap."""
    parts = []
    rows = [*zip(line.points, line.low or [math.nan] * len(line.points), line.high or line.low, strict=False)]
    if line.low:
        for there, group in groupby(rows, lambda row: math.isfinite(row[1]) and math.isfinite(row[2])):
            run = [*group]
            if there and len(run) > 1:
                outline = [(at, high) for (at, _), _, high in run] + [(at, low) for (at, _), low, _ in reversed(run)]
                parts.append(tag("polygon", points=_path(outline, x, y), class_=f"{colour(line.side)} band"))
    for there, points in groupby(line.points, lambda point: math.isfinite(point[1])):
        if there:
            found = [*points]
            if len(found) == 1:
                parts.append(tag("circle", cx=x(found[0][0]), cy=y(found[0][1]), r=1.5, class_=colour(line.side)))
            else:
                parts.append(tag("polyline", points=_path(found, x, y), class_=f"{colour(line.side)} line"))
    return parts


def _marked(line: ChartLine, x: Callable[[float], float], y: Callable[[float], float]) -> list[Markup]:
    parts = _drawn(ChartLine(line.side, line.points), x, y)
    for (at, value), low, high in zip(line.points, line.low, line.high, strict=True):
        if math.isfinite(low) and math.isfinite(high):
            parts.append(tag("line", x1=x(at), y1=y(low), x2=x(at), y2=y(high), class_=f"{colour(line.side)} range"))
        if math.isfinite(value):
            parts.append(mark(line.side, x(at), y(value)))
    return parts


def _path(points: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float]) -> str:
    return " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
