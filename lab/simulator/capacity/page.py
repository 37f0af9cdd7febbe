"""The page of a capacity: measures over the counts that were tried. Pure."""

import math
from collections.abc import Sequence

from lab.reports.document import document
from lab.reports.document import table as html_table
from lab.reports.markup import Markup, tag
from lab.simulator.capacity.answer import SHOWN, table
from lab.simulator.capacity.trials import Trials
from lab.simulator.results.measures import MEASURES, Measure
from lab.simulator.results.report.charts import over_key
from lab.simulator.results.student import Estimate


def page(title: str, said: Sequence[str], trials: Trials) -> str:
    """`said`: paragraphs below the title: the answer, and how it was found."""
    cells = table(trials)
    main = [
        tag("div", *(tag("div", _chart(trials, each)) for each in charted_measures(trials)), class_="charts"),
        tag("h2", "Counts that were tried"),
        html_table(cells.headings, cells.rows, "Counts that were tried"),
    ]
    return document(title, [tag("p", each) for each in said], main, "specpair simulator capacity")


def charted_measures(trials: Trials) -> list[Measure]:
    """The measures of the promise and some others, as far as they have values."""
    names = dict.fromkeys([*(each.measure.name for each in trials.bounds), *SHOWN])
    return [each for name in names if any(map(math.isfinite, means(trials, each := MEASURES[name])))]


def means(trials: Trials, measure: Measure) -> list[float]:
    """Of each count."""
    return [trial.estimate(measure).mean for trial in trials.in_order]


def values(trials: Trials) -> list[float]:
    """What is counted, of each count: the value of a key, or the number of drafters."""
    return [float(trial.outcome.candidate.choice.get(trials.size.name, trial.count)) for trial in trials.in_order]


def limit(trials: Trials, measure: Measure) -> float | None:
    """What is asked of a measure; None: nothing is."""
    return next((each.limit for each in trials.bounds if each.measure is measure), None)


def _chart(trials: Trials, measure: Measure) -> Markup:
    across = values(trials)
    lines = {"found": dict(zip(across, (each.estimate(measure) for each in trials.in_order), strict=True))}
    asked = limit(trials, measure)
    if asked is not None:
        lines["asked"] = {across[0]: Estimate(asked), across[-1]: Estimate(asked)}
    return over_key(measure, trials.size.name, lines)
