"""The report as one HTML file without scripts and external content; a policy forbids both."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from lab.bench import measures, tables
from lab.bench.analysis import Analysis
from lab.bench.comparison import Comparison
from lab.bench.errors import BadRecords
from lab.bench.jobs import PreparedCase
from lab.bench.records import MeasuredRequest, Results
from lab.bench.summary import Distribution
from lab.reports.charts import Ratio, Spread, legend, legend_mark, ratios, spreads
from lab.reports.document import charted, contents, document, folded, table, terms
from lab.reports.markup import Markup, joined, tag
from specpair import shared_files
from specpair.numbers import counted

_ANALYSIS = TypeAdapter(Analysis)
_CHARTED = (measures.SPEED, measures.TTFT, measures.ITL, measures.LATENCY)
_DRAWN = ("mark: median, stroke: 90 %, end of the line: 99 %", "mark: median, line: the middle half")
_TURNS = "Sides of one run take turns: request by request where a case sends one at a time, else by whole repetitions."
_DIFFERING = 3  # texts that differ, shown of a case and side
_TEXT = 1500  # characters of a text that are shown


def page(analysis: Analysis, results: Results) -> str:
    """The page. `results`: the analysed results, for texts and failures."""
    cases = [case for case in analysis.run.cases if analysis.summaries_of(case)]
    return document(
        f"drafter bench: {tables.title(analysis)}",
        (*_facts(analysis), _contents(analysis, cases)),
        (
            _sides(analysis),
            *_where_it_pays(analysis),
            *_figures(analysis, cases),
            *(_case(analysis, results, case) for case in cases),
            _definitions(),
        ),
        f"specpair {analysis.run.version}. Made from the records of the run by drafter bench.",
    )


def _facts(analysis: Analysis) -> Iterator[Markup]:
    run = analysis.run
    machine = ", ".join(f"{key} {value}" for key, value in run.machine.items())
    if machine:
        yield tag("p", f"Measured from: {machine}.", class_="soft")
    if len(run.sides) > 1:
        yield tag("p", _TURNS, class_="soft")
    if not analysis.complete:
        yield tag("p", tag("strong", "The run is not finished: these are the requests that were made."))


def _contents(analysis: Analysis, cases: Sequence[PreparedCase]) -> Markup:
    links = [("sides", "Sides")]
    if len(analysis.run.sides) > 1:
        links.append(("ratios", "Who wins"))
    links += [("figures", "Charts"), *((_anchor(case), case.name) for case in cases)]
    return contents([*links, ("definitions", "Definitions")])


def _sides(analysis: Analysis) -> Markup:
    endpoints = tables.endpoints(analysis)
    rows = [(joined(legend_mark(number), name), *cells) for number, (name, *cells) in enumerate(endpoints.rows)]
    shown = table(endpoints.headings, rows, "Sides")
    return tag("section", tag("h2", "Sides"), tag("div", shown, class_="words"), id="sides")


def _where_it_pays(analysis: Analysis) -> Iterator[Markup]:
    if len(analysis.run.sides) < 2:
        return
    numbers = {side.name: number for number, side in enumerate(analysis.run.sides)}
    found = [each for each in analysis.comparisons if each.measure == measures.SPEED.key]
    rows = [Ratio(_labelled(analysis, each), numbers[each.side], each.ratio, each.low, each.high) for each in found]
    told = "tokens/s in each case, times those of " + analysis.baseline
    chart = charted(
        f"tokens/s, times those of {analysis.baseline}",
        "line: interval of 95 %; hollow: 1 lies in it, or there are too few requests for one",
        ratios(rows, told),
    )
    overview = tables.overview(analysis)
    wins = "; ".join(
        f"{side.name} is faster in {_count(found, side.name, side.name)} and slower in "
        f"{_count(found, side.name, analysis.baseline)}, of {counted(_count(found, side.name), 'case')}"
        for side in analysis.run.sides
        if side.name != analysis.baseline
    )
    yield tag(
        "section",
        tag("h2", "Who wins"),
        tag("p", f"{wins}. In the other cases the difference may be noise."),
        tag("div", chart, class_="charts"),
        table(overview.headings, overview.rows, "tokens/s, times the baseline's"),
        tag(
            "p",
            "Each interval leaves out the truth in one of twenty cases: of many verdicts, a few are noise.",
            class_="soft",
        ),
        id="ratios",
    )


def _labelled(analysis: Analysis, compared: Comparison) -> str:
    return compared.case if len(analysis.run.sides) == 2 else f"{compared.case}: {compared.side}"


def _count(found: Sequence[Comparison], side: str, winner: str | None = None) -> int:
    return sum(each.side == side and winner in (None, each.winner) for each in found)


def _figures(analysis: Analysis, cases: Sequence[PreparedCase]) -> Iterator[Markup]:
    numbers = {side.name: number for number, side in enumerate(analysis.run.sides)}
    charts = []
    for measure in _CHARTED:
        rows = [
            (
                case.name,
                [
                    _spread(measure, numbers[each.side], values)
                    for each in analysis.summaries_of(case)
                    if (values := each.distributions.get(measure.key)) is not None
                ],
            )
            for case in cases
        ]
        rows = [(name, several) for name, several in rows if several]
        if rows:
            better = f"{measure.better} is better" if measure.better else ""
            caption = f"{measure.name}, {measure.unit}" if measure.unit != measure.name else measure.name
            spoken = f"{measure.definition}; {better}; {_DRAWN[measure is measures.SPEED]}"
            told = f"{caption} of each side in each case; the tables have the same figures"
            charts.append(charted(caption, spoken, spreads(rows, told)))
    yield tag(
        "section",
        tag("h2", "Charts"),
        legend([*numbers]),
        tag("div", *charts, class_="charts"),
        id="figures",
    )


def _spread(measure: measures.Measure, side: int, values: Distribution) -> Spread:
    if measure is measures.SPEED:
        return Spread(side, values.p50, values.p25, values.p75, None)
    return Spread(side, values.p50, values.p50, values.p99, values.p90)


def _case(analysis: Analysis, results: Results, case: PreparedCase) -> Markup:
    numbers = {side.name: number for number, side in enumerate(analysis.run.sides)}
    found = tables.sides(analysis, case)
    rows = [(joined(legend_mark(numbers[name]), name), *cells) for name, *cells in found.rows]
    return tag(
        "section",
        tag("h2", case.name),
        tag("p", case.case.description),
        tag("p", tables.load(case), class_="soft"),
        table(found.headings, rows, f"Figures of {case.name}"),
        tag("ul", *(tag("li", said) for said in tables.verdicts(analysis, case)), class_="said"),
        *_failures(results, case),
        *_differing(analysis, results, case),
        id=_anchor(case),
    )


def _failures(results: Results, case: PreparedCase) -> Iterator[Markup]:
    failed = [each for each in results.requests if each.case == case.name and each.failure is not None]
    if failed:
        messages = sorted(
            {f"{each.side}: {each.failure.kind}: {each.failure.message}" for each in failed if each.failure}
        )
        items = (tag("li", said[:_TEXT]) for said in messages[:20])
        yield folded(counted(len(failed), "request") + " failed", tag("ul", *items, class_="said"))


def _differing(analysis: Analysis, results: Results, case: PreparedCase) -> Iterator[Markup]:
    """The first texts that differ between a side and the baseline, beside each other."""
    texts = {(each.side, each.pairing): each for each in results.requests if each.case == case.name and each.text}
    for equal in analysis.equalities:
        if equal.case != case.name or equal.equal == equal.pairs:
            continue
        pairs = (
            (one, other)
            for (side, pairing), one in sorted(texts.items())
            if side == equal.side
            if (other := texts.get((equal.baseline, pairing))) is not None and one.text_hash != other.text_hash
        )
        shown = [_side_by_side(one, other) for one, other in islice(pairs, _DIFFERING)]
        if shown:
            yield folded(f"Texts of {equal.side} that differ from those of {equal.baseline}", *shown)


def _side_by_side(one: MeasuredRequest, other: MeasuredRequest) -> Markup:
    texts = (
        tag("div", tag("h3", f"{each.side}, {each.prompt}"), tag("pre", (each.text or "")[:_TEXT], tabindex="0"))
        for each in (other, one)
    )
    return tag("div", *texts, class_="two")


def _definitions() -> Markup:
    each = terms((one.name, one.definition) for one in measures.ALL)
    return tag("section", tag("h2", "Definitions"), each, id="definitions")


def _anchor(case: PreparedCase) -> str:
    """An anchor, as a hash: names may hold characters that an anchor must not."""
    return "case-" + sha256(case.name.encode()).hexdigest()[:8]


def write_reports(analysis: Analysis, results: Results, folder: Path) -> list[Path]:
    """Write the page, and the analysis as JSON. Returns the paths, the page's first. Raises BadRecords if a file cannot
    be written."""
    without: Any = {"run": {"cases": {"__all__": {"jobs": True, "case": {"prompts"}}}}}  # those are in run.json
    measured = _ANALYSIS.dump_python(analysis, mode="json", exclude=without)
    measured["measures"] = [asdict(each) for each in measures.ALL]
    paths = []
    for name, content in (
        ("report.html", page(analysis, results)),
        ("analysis.json", json.dumps(measured, indent=1) + "\n"),
    ):
        path = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with shared_files.replacing(path) as file:
                file.write(content.encode("utf-8", "replace"))  # a text may hold half of a surrogate pair
        except OSError as error:
            raise BadRecords(f"{path} cannot be written: {error.strerror or error}") from None
        paths.append(path)
    return paths
