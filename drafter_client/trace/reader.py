"""Read a folder of traces. A file that is not part of a trace raises a TraceError with the file and the line."""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from drafter_client.errors import TraceError
from drafter_client.trace.schema import MOST, ROUNDS, RUNS, TOKENS, Record, TraceTable
from drafter_client.trace.writer import run_file


class Exchange(NamedTuple):
    """A request and its response, in milliseconds; `sent_ms` and `arrived_ms` count from the begin of the run.

    The time between sending and arrival that is neither queue nor forward pass is network time.
    """

    sent_ms: float
    queue_ms: float
    forward_ms: float
    arrived_ms: float


@dataclass(frozen=True, slots=True)
class RunTrace:
    """One run: its record in `runs.csv` (`metrics`), its records in the other tables, and more from the JSON file.

    `steps`: begin and end of each draft step.
    `self_continuation_passes`: the duration of each verifier pass, and when the drafter heard of it.

    Times are milliseconds, points in time count from the begin of the run.
    """

    of: int  # number of runs in the folder
    metrics: Record
    rounds: list[Record]
    tokens: list[Record]
    prefills: list[Exchange]
    steps: list[tuple[float, float]]
    self_continuation_passes: list[tuple[float, float]]


def read_run(folder: Path, number: int | None = None) -> RunTrace:
    """Read run `number` of `folder`. None: the last run in which draft tokens were judged, or else the last run.

    Raises TraceError if there is no such run, or if a file cannot be read.
    """
    runs = read_table(folder, RUNS)
    numbers = [each["run"] for each in runs]
    if not runs:
        raise TraceError(f"no run has been written to {folder} yet: give --profile {folder} to a run")
    record: Record | None
    if number is None:
        record = next((each for each in reversed(runs) if each["drafted"]), runs[-1])
    else:
        record = next((each for each in runs if each["run"] == number), None)
    if record is None:
        existing = ", ".join(map(str, numbers))
        raise TraceError(f"there is no run {number} in {folder / RUNS.file}: it has {existing}")
    number = int(record["run"] or 0)
    detail = _Detail(run_file(folder, number))
    return RunTrace(
        of=len(runs),
        metrics=record,
        rounds=read_table(folder, ROUNDS, number),
        tokens=read_table(folder, TOKENS, number),
        prefills=[Exchange(*entry) for entry in detail.each("prefills", Exchange._fields)],
        steps=[(began, ended) for began, ended in detail.each("steps", ("began_ms", "ended_ms"))],
        self_continuation_passes=[
            (took, arrived) for took, arrived in detail.each("self_continuation_passes", ("forward_ms", "arrived_ms"))
        ],
    )


def read_table(folder: Path, table: TraceTable, run: int | None = None) -> list[Record]:
    """Read all records of one table, or only those of one run; damaged records of other runs are then ignored.

    Raises TraceError if the file cannot be read or is not this table.
    """
    path = folder / table.file
    lines = csv.reader(_text(path).splitlines(keepends=True), strict=True)
    records = []
    try:
        if next(lines, None) != table.names:
            raise ValueError("these are not the columns that this version writes")
        for cells in lines:
            if cells and run in (None, _number(cells[0])):
                records.append(table.row(cells))
    except (ValueError, csv.Error) as error:
        raise TraceError(f"{path}, line {max(1, lines.line_num)}: {error}: is it a trace?") from None
    return records


def _number(cell: str) -> int | None:
    return int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 10 else None


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        return data.decode()
    except OSError as error:
        raise TraceError(f"the trace {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = 1 + data[: error.start].count(b"\n")
        raise TraceError(f"{path}, line {line}: this is not UTF-8 text: is it a trace?") from None


class _Detail:
    """The JSON file of a run; its lists of numbers are checked and read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._body = json.loads(_text(path))
        except json.JSONDecodeError as error:
            raise TraceError(f"{path}, line {error.lineno}: {error.msg}: is it a trace?") from None
        except (ValueError, RecursionError):  # a number with thousands of digits, or thousands of nested lists
            raise self._wrong("it", "has a number too long or a list nested too deeply") from None
        if not isinstance(self._body, dict):
            raise self._wrong("it", "is not an object")

    def each(self, name: str, fields: Sequence[str]) -> Iterator[list[float]]:
        """Yield the values of `fields` for each object in the list `name`. Raises TraceError if one is no number."""
        entries = self._body.get(name)
        if not isinstance(entries, list):
            raise self._wrong(name, "is not a list")
        for at, entry in enumerate(entries):
            yield self._numbers(f"{name}.{at}", entry, fields)

    def _numbers(self, name: str, entry: Any, fields: Sequence[str]) -> list[float]:
        if not isinstance(entry, dict):
            raise self._wrong(name, "is not an object")
        values: list[Any] = [entry.get(field) for field in fields]
        for field, value in zip(fields, values, strict=True):
            if type(value) not in (int, float) or not abs(value) <= MOST:
                raise self._wrong(f"{name}.{field}", "is not a number of at most 2^53 in size")
        return [float(value) for value in values]

    def _wrong(self, name: str, what: str) -> TraceError:
        return TraceError(f"{self._path}, line 1: {name} {what}: is it a trace?")
