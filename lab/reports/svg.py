"""Parts of charts as SVG. Labels stand above what they label, so a chart is narrow enough for a phone."""

from collections.abc import Sequence
from math import ceil, floor, log10

from lab.reports.markup import Markup, joined, tag
from lab.reports.style import COLOURS

WIDTH, LEFT, RIGHT = 360, 8, 354  # of a chart, and where its plot begins and ends


def chart(parts: Sequence[Markup], height: float, told: str) -> Markup:
    """The chart. `told`: what it shows, for those who do not see it."""
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
    """A line from one value to another."""
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
