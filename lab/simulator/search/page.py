"""The page of a search: candidates by two objectives, as SVG in HTML that needs no other file. Pure."""

import math
from collections.abc import Sequence

from lab.reports.document import charted, document
from lab.reports.document import table as html_table
from lab.reports.markup import Markup, tag
from lab.reports.svg import LEFT, RIGHT, chart, mark, round_steps, span, tick, words
from lab.simulator.results.measures import Measure
from lab.simulator.results.report.charts import over_key
from lab.simulator.search.outcomes import Goals, Outcome
from lab.simulator.search.pareto import heading, is_on_front, ordered, table

_HEIGHT, _FOOT = 260, 34
_SPACE = 30  # left of the plot, for figures of the upright axis
_FRONT, _OTHER = 0, 1  # sides of the style


def page(title: str, said: Sequence[str], outcomes: Sequence[Outcome], goals: Goals) -> str:
    """`said`: paragraphs below the title: what was varied, how it was compared."""
    cells = table(outcomes, goals)
    charts = [
        charted(
            f"{heading(across)} and {heading(up)}",
            "filled: no other candidate is better (Pareto); hollow: another one is; lines: 95 % intervals",
            scatter(outcomes, goals, across, up),
        )
        for across, up in pairs(goals)
    ]
    main = [
        tag("div", *over_the_key(outcomes, goals), class_="charts"),
        tag("div", *charts, class_="charts"),
        tag("h2", "Candidates"),
        html_table(cells.headings, cells.rows, "Candidates"),
    ]
    return document(title, [tag("p", each) for each in said], main, "specpair simulator search")


def over_the_key(outcomes: Sequence[Outcome], goals: Goals) -> list[Markup]:
    """A chart for each measure of the goals, where one key varies alone and has numbers; else none."""
    names = {name for each in outcomes for name in each.candidate.choice}
    values = [value for each in outcomes for value in each.candidate.choice.values()]
    if len(names) != 1 or not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return []
    [key] = names
    return [
        over_key(each, key, {"": {one.candidate.choice[key]: one.estimate(each.name) for one in outcomes}})
        for each in goals.measures
    ]


def pairs(goals: Goals) -> list[tuple[Measure, Measure]]:
    """The objectives that are drawn against each other: the first with each other one; alone, with itself."""
    first, *others = goals.objectives
    return [(other, first) for other in others] or [(first, first)]


def scatter(outcomes: Sequence[Outcome], goals: Goals, across: Measure, up: Measure) -> Markup:
    """Candidates with their numbers. Both axes begin at 0."""
    seen = [each for each in outcomes if all(math.isfinite(each.estimate(m.name).mean) for m in (across, up))]
    most_x = max((_high(each, across) for each in seen), default=0.0) or 1.0
    most_y = max((_high(each, up) for each in seen), default=0.0) or 1.0

    def x(value: float) -> float:
        return LEFT + _SPACE + (RIGHT - LEFT - _SPACE - 8) * max(value, 0.0) / most_x

    def y(value: float) -> float:
        return 14 + (_HEIGHT - 14) * (1 - max(value, 0.0) / most_y)

    parts = [tick(x(at), _HEIGHT, f"{at:g}") for at in round_steps(most_x)]
    for at in round_steps(most_y):
        parts.append(tag("line", x1=x(0), y1=y(at), x2=RIGHT, y2=y(at), class_="axis"))
        parts.append(words(f"{at:g}", x(0) - 4, y(at) + 4, "right soft"))
    for each in reversed(ordered(seen, goals)):
        best = is_on_front(each, outcomes, goals)
        side, kind = (_FRONT, "") if best else (_OTHER, "undecided")
        found_x, found_y = each.estimate(across.name), each.estimate(up.name)
        at_x, at_y = x(found_x.mean), y(found_y.mean)
        if found_x.low is not None and found_x.high is not None:
            parts.append(span(side, x(found_x.low), x(found_x.high), at_y))
        if found_y.low is not None and found_y.high is not None:
            line = {"x1": at_x, "y1": y(found_y.low), "x2": at_x, "y2": y(found_y.high)}
            parts.append(tag("line", **line, class_=f"side-{side} range"))
        parts.append(mark(side, at_x, at_y, 4.5, kind))
        parts.append(words(str(each.candidate.number), at_x + 6, at_y - 5, "strong" if best else "soft"))
    parts.append(words(f"↑ {heading(up)}", LEFT, 9, "soft"))
    parts.append(words(f"{heading(across)} →", RIGHT, _HEIGHT + 26, "right soft"))
    return chart(parts, _HEIGHT + _FOOT, f"{len(seen)} candidates by {up.words} and {across.words}")


def _high(outcome: Outcome, measure: Measure) -> float:
    found = outcome.estimate(measure.name)
    return found.mean if found.high is None else found.high
