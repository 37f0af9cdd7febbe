"""The figures of a run as CSV and JSON."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter

from lab.bench.records import MeasuredRequest
from lab.bench.statistics import measures
from lab.bench.statistics.analysis import Analysis
from lab.bench.statistics.comparison import COMPARED, Comparison
from specpair.command_line.table import harmless

_STATISTICS = ("mean", "stddev", "min", "max", "p50", "p90", "p99")
_OF_A_REQUEST = (
    *("case", "side", "repetition", "index", "prompt", "seed", "stretch", "scheduled", "started", "ended"),
    *("ttft_ms", "itl_ms", "latency_ms", "tokens_per_second", "tokens_in", "tokens_out", "cached", "finish"),
    *("drafted", "accepted", "rounds", "text_hash", "failure", "chunks"),
)
_COMPARED = ("ratio", "low", "high", "winner")


def summary_csv(analysis: Analysis) -> str:
    """A line for each side in each case: its figures, and how many times the baseline's they are."""
    columns = [
        *("case", "group", "side", "baseline", "requests", "failed", "tokens_in", "tokens_out", "loaded_s", "steady_s"),
        *(f"{measure.key}_{name}" for measure in measures.DISTRIBUTED for name in _STATISTICS),
        *(measure.key for measure in measures.SINGLE),
        *("drafted", "accepted", "rounds"),
        *(f"{measure.key}_{name}" for measure in COMPARED for name in _COMPARED),
        *("texts_compared", "texts_equal"),
    ]
    lines = []
    for case in analysis.run.cases:
        for each in analysis.summaries_of(case):
            equal = [found for found in analysis.equalities if (found.case, found.side) == (each.case, each.side)]
            line: dict[str, Any] = {
                "case": case.name,
                "group": case.group,
                "side": each.side,
                "baseline": analysis.baseline,
                "requests": each.requests,
                "failed": sum(each.failures.values()),
                "tokens_in": each.tokens_in,
                "tokens_out": each.tokens_out,
                "loaded_s": each.loaded_s,
                "steady_s": each.steady_s,
                "drafted": each.drafted,
                "accepted": each.accepted,
                "rounds": each.rounds,
                "texts_compared": equal[0].pairs if equal else None,
                "texts_equal": equal[0].equal if equal else None,
                **each.values,
            }
            for key, values in each.distributions.items():
                line |= {f"{key}_{name}": getattr(values, name) for name in _STATISTICS}
            for measure in COMPARED:
                line |= _compared(measure.key, analysis.comparison(case.name, each.side, measure.key))
            lines.append(line)
    return _csv(columns, lines)


def requests_csv(requests: Sequence[MeasuredRequest]) -> str:
    """A line for each request. `chunks`: how many came."""
    lines = []
    for each in sorted(requests, key=lambda each: (each.started, each.side, each.pairing)):
        line = {name: getattr(each, name) for name in _OF_A_REQUEST if hasattr(each, name)}
        told = each.speculation
        line |= {
            "drafted": told.drafted if told else None,
            "accepted": told.accepted if told else None,
            "rounds": told.rounds if told else None,
            "failure": each.failure.kind if each.failure else None,
            "chunks": len(each.chunks),
        }
        lines.append(line)
    return _csv(_OF_A_REQUEST, lines)


def as_json(analysis: Analysis) -> str:
    """The analysis as one JSON document; `schema` says what is in it."""
    return json.dumps(asdict(analysis) | {"measures": [asdict(each) for each in measures.ALL]}, indent=1) + "\n"


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of what `as_json` writes. The measures' definitions are in the document itself."""
    found = TypeAdapter(Analysis).json_schema()
    found["properties"]["measures"] = {
        "type": "array",
        "description": "each measure's key, name, unit, direction, definition and source",
        "items": TypeAdapter(measures.Measure).json_schema(),
    }
    return found


def _compared(key: str, found: Comparison | None) -> Mapping[str, Any]:
    return {} if found is None else {f"{key}_{name}": getattr(found, name) for name in _COMPARED}


def _csv(columns: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> str:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows({name: harmless(value) for name, value in line.items()} for line in lines)
    return file.getvalue()
