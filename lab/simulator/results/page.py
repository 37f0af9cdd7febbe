"""The page of a run: one HTML file that needs no other."""

import math
from collections.abc import Iterator

import yaml

from lab.reports.charts import ChartLine, lines
from lab.reports.document import charted, contents, document, folded, table, terms
from lab.reports.markup import Markup, tag
from lab.simulator.configuration.keys import MS
from lab.simulator.results.measures import CONFIDENCE, MEASURES, RunMeasure
from lab.simulator.results.summary import RunSummary, all_tables
from specpair.numbers import counted

# Measures that charts show over time, in their order.
OVER_TIME = (
    *("throughput_tps", "ttft_p95_ms", "tpot_p95_ms", "slo_attainment"),
    *("queue_depth", "occupancy", "utilisation", "slots_held"),
)


def page(run: RunSummary) -> str:
    """The page of a run."""
    configuration = yaml.safe_dump(run.configuration, sort_keys=False, allow_unicode=True)
    parts = [
        *((title, [table(cells.headings, cells.rows, title)]) for title, cells in all_tables(run)),
        ("Over time", [*_over_time(run)]),
        ("Configuration", [folded(f"{run.name}, with all defaults", tag("pre", configuration, tabindex="0"))]),
        ("Definitions", [_definitions()]),
    ]
    sections = [(title.lower().replace(" ", "-"), title, children) for title, children in parts]
    return document(
        f"simulation: {run.name}",
        (*_facts(run), contents((anchor, title) for anchor, title, _ in sections)),
        (tag("section", tag("h2", title), *children, id=anchor) for anchor, title, children in sections),
        f"specpair {run.version}. Simulated, not measured.",
    )


def _facts(run: RunSummary) -> Iterator[Markup]:
    """Sentences about the run."""
    given = run.configuration
    kinds = given["devices"]["verifiers"], given["devices"]["drafters"]
    verifiers, drafters = (", ".join(f"{kind['count']} {kind['name']}" for kind in each) for each in kinds)
    burnt = f", the first {given['burn_in_ms'] * MS:g} s left out" if given["burn_in_ms"] else ""
    intervals = "There are no intervals."
    if len(run.replications) > 1:
        intervals = f"Behind ±: half of the {CONFIDENCE:.0%} interval, by Student's t."
    yield tag(
        "p",
        f"Verifiers: {verifiers}. Drafters: {drafters or 'none'}. Mode {given['mode']}, router {given['router']}, "
        f"seed {given['seed']}. {counted(len(run.replications), 'replication')} of {given['sim_time_ms'] * MS:g} "
        f"simulated seconds{burnt}. {intervals}",
        class_="soft",
    )
    if run.interrupted:
        yield tag("p", tag("strong", "The run was interrupted: these are figures of the replications before."))


def _over_time(run: RunSummary) -> Iterator[Markup]:
    if len(run.replications) > 1:
        yield tag("p", "Line: mean of the replications; band: from the smallest to the greatest.", class_="soft")
    charts = (_line(run, MEASURES[name]) for name in OVER_TIME)
    yield tag("div", *(each for each in charts if each is not None), class_="charts")


def _line(run: RunSummary, measure: RunMeasure) -> Markup | None:
    """A measure over time; None: it has no values."""
    several = [
        [measure.scale * value for value in each] for each in (of.series[measure.name] for of in run.replications)
    ]
    intervals = [[value for value in at if math.isfinite(value)] for at in zip(*several, strict=True)]
    if not any(intervals):
        return None
    width = run.configuration["sim_time_ms"] * MS / len(intervals)
    line = ChartLine(
        0,
        [((at + 0.5) * width, sum(each) / len(each) if each else math.nan) for at, each in enumerate(intervals)],
        [min(values, default=math.nan) for values in intervals] if len(several) > 1 else (),
        [max(values, default=math.nan) for values in intervals] if len(several) > 1 else (),
    )
    shaded, most = run.configuration["burn_in_ms"] * MS, 100.0 if measure.scale == 100.0 else 0.0
    drawn = lines([line], "simulated seconds", f"{measure.caption} over time", shaded=shaded, most=most)
    return charted(measure.caption, measure.meaning + ("; shaded: burn-in" if shaded else ""), drawn)


def _definitions() -> Markup:
    """The definitions of the measures."""
    return terms(
        (each.words, (each.meaning, tag("span", f" ({each.unit})", class_="soft") if each.unit else ""))
        for each in MEASURES.values()
    )
