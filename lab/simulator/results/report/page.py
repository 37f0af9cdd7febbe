"""The report of a run as one HTML file."""

import math
from collections.abc import Iterator, Sequence

import yaml

from lab.reports.document import charted, contents, document, folded, table, terms
from lab.reports.markup import Markup, tag
from lab.simulator.results.measures import MEASURES, SHARE, Measure
from lab.simulator.results.report import table as tables
from lab.simulator.results.report.charts import Bar, Line, bars, lines
from lab.simulator.results.report.lanes import legend, request_charts
from lab.simulator.results.student import CONFIDENCE
from lab.simulator.results.summary import Summary
from specpair.command_line.table import Table
from specpair.counted import counted

_GROUPS = (("tenants", "tenant"), ("devices", "drafter"))


def page(run: Summary) -> str:
    """The page of a run."""
    parts = [
        ("figures", "Figures", _figures(run)),
        ("time", "Over time", _over_time(run)),
        ("groups", "Who is served how", [*_attainment(run), *_groups(run)]),
        ("nodes", "Verifiers", _nodes(run)),
        ("requests", "Single requests", _requests(run)),
        ("configuration", "Configuration", [configuration(run)]),
        ("definitions", "Definitions", [definitions()]),
    ]
    built = [(anchor, title, [*children]) for anchor, title, children in parts]
    there = [each for each in built if each[2]]
    return document(
        f"simulation: {run.name}",
        (*facts(run), contents((anchor, title) for anchor, title, _ in there)),
        (tag("section", tag("h2", title), *children, id=anchor) for anchor, title, children in there),
        f"specpair {run.version}. Simulated, not measured.",
    )


def facts(run: Summary) -> Iterator[Markup]:
    """What was run, in sentences."""
    given = run.configuration
    kinds = given["devices"]["verifiers"], given["devices"]["drafters"]
    verifiers, drafters = (", ".join(f"{kind['count']} {kind['name']}" for kind in each) for each in kinds)
    burnt = f", the first {given['burn_in_ms'] / 1e3:g} s left out" if given["burn_in_ms"] else ""
    yield tag(
        "p",
        f"Verifiers: {verifiers}. Drafters: {drafters or 'none'}. Mode {given['mode']}, router {given['router']}, "
        f"seed {given['seed']}. {counted(len(run.replications), 'replication')} of {given['sim_time_ms'] / 1e3:g} "
        f"simulated seconds{burnt}.",
        class_="soft",
    )
    if run.interrupted:
        yield tag("p", tag("strong", "The run was interrupted: these are figures of the time before."))


def _figures(run: Summary) -> Iterator[Markup]:
    if len(run.replications) > 1:
        said = f"Behind ±: half of the interval that has the mean with {CONFIDENCE:.0%} confidence, by Student's t."
    else:
        said = "One replication: there are no intervals."
    yield tag("p", said, class_="soft")
    yield tag("div", as_table(tables.figures(run), "Figures"), as_table(tables.times(run), "Times"), class_="two")


def _over_time(run: Summary) -> Iterator[Markup]:
    charts = [each for name in tables.OVER_TIME if (each := _line(run, MEASURES[name])) is not None]
    if charts:
        if len(run.replications) > 1:
            yield tag("p", "Line: mean of the replications; band: from the smallest to the greatest.", class_="soft")
        yield tag("div", *charts, class_="charts")


def _line(run: Summary, measure: Measure) -> Markup | None:
    """A measure over time; None: it has no values."""
    scale = 100.0 if measure.unit == SHARE else 1.0
    several = [[scale * value for value in each] for each in run.series(measure.name)]
    parts = [[value for value in at if math.isfinite(value)] for at in zip(*several, strict=True)]
    if not any(parts):
        return None
    seconds = run.configuration["sim_time_ms"] / 1e3
    width = seconds / len(parts)
    line = Line(
        0,
        [((number + 0.5) * width, _mean(values)) for number, values in enumerate(parts)],
        [min(values, default=math.nan) for values in parts] if len(several) > 1 else (),
        [max(values, default=math.nan) for values in parts] if len(several) > 1 else (),
    )
    caption = tables.captioned(measure)
    shaded = run.configuration["burn_in_ms"] / 1e3
    drawn = lines(
        [line], "simulated seconds", f"{caption} over time", shaded=shaded, most=100.0 if scale == 100.0 else 0.0
    )
    return charted(caption, measure.meaning + ("; shaded: burn-in" if shaded else ""), drawn)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _attainment(run: Summary) -> Iterator[Markup]:
    """SLO attainment by tenant and by kind of drafters."""
    measure = MEASURES["slo_attainment"]
    charts = []
    for kind, heading in _GROUPS:
        rows = [
            Bar(name or "-", 0, found.mean, tables.told(measure, found))
            for name, values in run.grouped(kind).items()
            if math.isfinite((found := values[measure.name]).mean)
        ]
        if len(rows) > 1 or (rows and kind == "tenants"):
            caption = f"{measure.title} by {heading}"
            charts.append(charted(caption, measure.meaning, bars(rows, 1.0, caption)))
    if charts:
        yield tag("div", *charts, class_="charts")


def _groups(run: Summary) -> Iterator[Markup]:
    for kind, heading in _GROUPS:
        found = tables.grouped(run, kind, heading)
        if len(found.rows) > 1:
            yield as_table(found, f"By {heading}")


def _nodes(run: Summary) -> Iterator[Markup]:
    measure = MEASURES["utilisation"]
    nodes = run.grouped("nodes")
    if nodes:
        rows = [
            Bar(name, 0, each[measure.name].mean, tables.told(measure, each[measure.name]))
            for name, each in nodes.items()
        ]
        caption = "utilisation by verifier"
        yield tag("div", charted(caption, measure.meaning, bars(rows, 1.0, caption)), class_="charts")
        yield as_table(tables.grouped(run, "nodes", "verifier"), "By verifier")


def _requests(run: Summary) -> Iterator[Markup]:
    """A few requests of the first replication over time."""
    if run.timelines:
        said = "Of the first replication, behind the burn-in. Lines between the lanes are messages."
        yield tag("p", said, class_="soft")
        yield legend()
        for each in run.timelines:
            yield from request_charts(each)


def configuration(run: Summary) -> Markup:
    """The configuration with all defaults, as YAML."""
    text = yaml.safe_dump(run.configuration, sort_keys=False, allow_unicode=True)
    return folded(f"{run.name}, with all defaults", tag("pre", text, tabindex="0"))


def definitions() -> Markup:
    """What each measure is."""
    return terms(
        (each.words, (each.meaning, tag("span", f" ({each.unit})", class_="soft") if each.unit else ""))
        for each in MEASURES.values()
    )


def as_table(cells: Table, label: str) -> Markup:
    """A table of the page."""
    return table(cells.headings, cells.rows, label)
