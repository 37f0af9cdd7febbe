"""Writes the reports of a run beside its records."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.bench.errors import BadRecords
from lab.bench.records import Results
from lab.bench.report import data_files, llmperf
from lab.bench.report.markdown import markdown
from lab.bench.report.page.page import page
from lab.bench.report.picture import draw
from lab.bench.statistics.analysis import Analysis
from specpair import shared_files

PAGE, PICTURE, LLMPERF = "report.html", "report.png", "llmperf"


def write_reports(analysis: Analysis, results: Results, folder: Path) -> list[Path]:
    """Write everything but the picture: page, Markdown, CSV, JSON with its schema, LLMPerf's files. Returns the paths.
    Raises BadRecords if a file cannot be written."""
    paths = []
    for name, content in _contents(analysis, results):
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with shared_files.replacing(path) as file:
                file.write(content.encode("utf-8", "replace"))  # a text may hold half of a surrogate pair
        except OSError as error:
            raise BadRecords(f"{path} cannot be written: {error.strerror or error}") from None
        paths.append(path)
    return paths


def write_picture(analysis: Analysis, folder: Path) -> Path:
    """Write the picture. Returns its path. Raises NoPicture."""
    draw(analysis, folder / PICTURE)
    return folder / PICTURE


def _contents(analysis: Analysis, results: Results) -> Iterator[tuple[str, str]]:
    yield PAGE, page(analysis, results)
    yield "report.md", markdown(analysis)
    yield "summary.csv", data_files.summary_csv(analysis)
    yield "requests.csv", data_files.requests_csv(results.requests)
    yield "analysis.json", data_files.as_json(analysis)
    yield "analysis.schema.json", _json(data_files.schema())
    for case in analysis.run.cases:
        for side, figures in ((side, each) for side in analysis.run.sides for each in analysis.summaries_of(case)):
            if figures.side != side.name:
                continue
            requests = [each for each in results.requests if (each.case, each.side) == (case.name, side.name)]
            stem = f"{LLMPERF}/{llmperf.file_stem(case, side)}"
            summary = llmperf.summary(case, side, figures, requests, analysis.run.begun_unix)
            yield f"{stem}_summary.json", _json(summary)
            yield f"{stem}_individual_responses.json", _json(llmperf.individual_responses(requests))


def _json(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"
