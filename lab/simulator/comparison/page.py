"""The page of runs side by side. Pure."""

import math
from collections.abc import Sequence

from lab.reports.document import charted, document
from lab.reports.markup import Markup, tag
from lab.reports.svg import LEFT, RIGHT, chart, legend, mark, span, tick, words
from lab.simulator.comparison import tables
from lab.simulator.comparison.differences import NOISE, UNKNOWN, Difference, differences
from lab.simulator.results.measures import MEASURES, SHARE, Measure
from lab.simulator.results.report.charts import Line, lines
from lab.simulator.results.report.page import as_table, definitions, facts
from lab.simulator.results.report.table import captioned
from lab.simulator.results.summary import Summary

_OVER_TIME = ("throughput_tps", "ttft_p95_ms", "tpot_p95_ms", "queue_depth")
_ROW = 30  # height of a measure in the chart of differences
_MOST = 1.0  # the greatest relative difference that has a place of its own


def page(runs: Sequence[Summary]) -> str:
    """The page. The first run is what the others are compared with."""
    names = [each.name for each in runs]
    keys = tables.keys(runs)
    main = [
        tag("h2", "Differences"),
        *(tag("p", each, class_="soft") for each in tables.said(runs)),
        legend(names),
        tag("div", charted(*_captions(runs[0]), relative(runs)), class_="charts"),
        tag("h2", "Measures"),
        as_table(tables.measures(runs), "Measures"),
        tag("h2", "Over time"),
        tag("div", *(_over_time(runs, MEASURES[name]) for name in _OVER_TIME), class_="charts"),
        tag("h2", "Files"),
        as_table(keys, "Keys that differ") if keys.rows else tag("p", "All keys are the same."),
        *(part for each in runs for part in (tag("h3", each.name), *facts(each))),
        tag("h2", "Definitions"),
        definitions(),
    ]
    return document("Simulations: " + ", ".join(names), [], main, f"specpair {runs[0].version}. Simulated.")


def relative(runs: Sequence[Summary]) -> Markup:
    """The relative differences from the first run, each with its interval around 0; hollow: noise."""
    first, *others = runs
    found = [differences(first, each) for each in others]
    shown = [
        name
        for name in MEASURES
        if any(name in each and math.isfinite(each[name].relative.mean) for each in found)
        and not all(each[name].state == "equal" for each in found if name in each)
    ]
    most = min(max((_end(each[name]) for each in found for name in shown if name in each), default=0.0), _MOST) or _MOST
    middle, half = (LEFT + RIGHT) / 2, (RIGHT - LEFT) / 2 - 12

    def x(share: float) -> float:
        return middle + half * max(min(share / most, 1.0), -1.0)

    height = _ROW * len(shown) + 4
    parts = [tick(x(at), height, f"{100 * at:+.0f} %" if at else "0") for at in (-most, -most / 2, 0.0, most / 2, most)]
    for row, name in enumerate(shown):
        parts.append(words(MEASURES[name].words, LEFT, _ROW * row + 11, ""))
        for side, each in enumerate(found, 1):
            if name not in each or not math.isfinite((share := each[name].relative).mean):
                continue
            y = _ROW * row + 21
            if share.low is not None and share.high is not None:
                parts.append(span(side, x(share.low), x(share.high), y))
            parts.append(mark(side, x(share.mean), y, 4.0, _kind(each[name])))
    return chart(parts, height + 18, f"relative differences of {len(shown)} measures from {first.name}")


def _captions(first: Summary) -> tuple[str, str]:
    told = f"means with their 95 % intervals; hollow: noise; beyond {100 * _MOST:g} %: at the edge"
    return f"difference from {first.name}", told


def _kind(found: Difference) -> str:
    return "undecided" if found.state in (NOISE, UNKNOWN) else ""


def _end(found: Difference) -> float:
    """The end of an interval that is farther from 0."""
    share = found.relative
    return 0.0 if math.isnan(share.mean) else abs(share.mean) + (share.half or 0.0)


def _over_time(runs: Sequence[Summary], measure: Measure) -> Markup:
    scale = 100.0 if measure.unit == SHARE else 1.0
    several = []
    for side, run in enumerate(runs):
        parts = zip(*run.series(measure.name), strict=True)
        values = [[scale * value for value in at if math.isfinite(value)] for at in parts]
        width = run.configuration["sim_time_ms"] / 1e3 / max(len(values), 1)
        points = [((at + 0.5) * width, sum(each) / len(each) if each else math.nan) for at, each in enumerate(values)]
        several.append(Line(side, points))
    caption = captioned(measure)
    return charted(caption, measure.meaning, lines(several, "simulated seconds", f"{caption} over time"))
