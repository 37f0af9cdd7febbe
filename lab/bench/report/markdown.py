"""The figures of a run as Markdown."""

import re
from collections.abc import Iterator

from lab.bench.report import sentences, tables
from lab.bench.statistics import measures
from lab.bench.statistics.analysis import Analysis
from specpair.command_line.table import Table

_OBEYED = re.compile(r"([\\`*_{}\[\]<>|#!~&$])")


def markdown(analysis: Analysis) -> str:
    """The report as a Markdown text. Names and descriptions are escaped."""
    return "\n".join(_lines(analysis)) + "\n"


def _lines(analysis: Analysis) -> Iterator[str]:
    yield f"# drafter bench: {_escaped(sentences.title(analysis))}"
    if analysis.run.machine:
        yield ""
        yield (
            "Measured on " + ", ".join(_escaped(f"{key} {value}") for key, value in analysis.run.machine.items()) + "."
        )
    yield from _table(tables.endpoints(analysis))
    if len(analysis.run.sides) > 1:
        yield ""
        yield f"## tokens/s, times those of {_escaped(analysis.baseline)}"
        yield from _table(tables.overview(analysis))
    for case in analysis.run.cases:
        if not analysis.summaries_of(case):
            continue
        yield ""
        yield f"## {_escaped(case.name)}"
        yield ""
        yield f"{_escaped(case.description)} ({_escaped(sentences.load(case))})"
        yield from _table(tables.sides(analysis, case))
        yield ""
        yield from (f"- {_escaped(said)}" for said in sentences.verdicts(analysis, case))
        yield from _table(tables.percentiles(analysis, case))
    yield ""
    yield "## Definitions"
    yield ""
    yield from (f"- **{each.name}**: {_escaped(each.definition)} ({_escaped(each.source)})" for each in measures.ALL)


def _table(table: Table) -> Iterator[str]:
    yield ""
    yield _row(table.headings)
    yield _row(("---", *(["---:"] * (len(table.headings) - 1))), escaped=False)
    for row in table.rows:
        yield _row(row)


def _row(cells: tuple[str, ...], escaped: bool = True) -> str:
    return "| " + " | ".join(_escaped(cell) if escaped else cell for cell in cells) + " |"


def _escaped(text: str) -> str:
    return _OBEYED.sub(r"\\\1", " ".join(text.split()))
