"""The page of a capacity: measures over the counts that were tried. Pure."""

import math
from collections.abc import Sequence

from simulator.capacity.answer import SHOWN, table
from simulator.capacity.trials import Trials
from simulator.results.measures import MEASURES, SHARE, Measure
from simulator.results.report.charts import Line, lines
from simulator.results.report.table import captioned
from simulator.search.outcomes import ATTAINMENT
from specpair.reports.document import charted, document
from specpair.reports.document import table as html_table
from specpair.reports.markup import Markup, tag

_FOUND, _ASKED = 0, 1  # sides of the style


def page(title: str, said: Sequence[str], trials: Trials) -> str:
    """`said`: paragraphs below the title: the answer, and how it was found."""
    names = [ATTAINMENT, *(each.measure.name for each in trials.bounds), *SHOWN]
    charts = [each for name in dict.fromkeys(names) if (each := _chart(trials, MEASURES[name])) is not None]
    cells = table(trials)
    main = [
        tag("div", *charts, class_="charts"),
        tag("h2", "Counts that were tried"),
        html_table(cells.headings, cells.rows, "Counts that were tried"),
    ]
    return document(title, [tag("p", each) for each in said], main, "python -m simulator capacity")


def points(trials: Trials, measure: Measure) -> tuple[list[tuple[float, float]], list[float], list[float]]:
    """A measure over the values of what is counted: its means, and the ends of their intervals. Shares in percent."""
    scale = 100.0 if measure.unit == SHARE else 1.0
    means, low, high = [], [], []
    for trial in trials.in_order:
        found = trial.estimate(measure)
        across = float(trial.outcome.candidate.choice.get(trials.size.name, trial.count))
        means.append((across, scale * found.mean))
        low.append(math.nan if found.low is None else scale * max(found.low, 0.0))
        most = 1.0 if measure.unit == SHARE else math.inf
        high.append(math.nan if found.high is None else scale * min(found.high, most))
    return means, low, high


def limit(trials: Trials, measure: Measure) -> float | None:
    """What is asked of a measure, in percent for a share; None: nothing is."""
    scale = 100.0 if measure.unit == SHARE else 1.0
    return next((scale * each.limit for each in trials.bounds if each.measure is measure), None)


def _chart(trials: Trials, measure: Measure) -> Markup | None:
    """None: the measure has no values."""
    means, low, high = points(trials, measure)
    if not any(math.isfinite(value) for _, value in means):
        return None
    several = [Line(_FOUND, means, low, high)]
    asked = limit(trials, measure)
    if asked is not None:
        ends = [(at, asked) for at in (means[0][0], means[-1][0])]
        several.append(Line(_ASKED, ends, [math.nan] * 2, [math.nan] * 2))
    told = "means with their 95 % intervals" + ("" if asked is None else "; squares: what is asked")
    caption = captioned(measure)
    return charted(caption, told, lines(several, trials.size.name, f"{caption} over {trials.size.name}", marks=True))
