"""Reads a folder of traces. A file that is not part of a trace raises a TraceError with the file and the line."""

import csv
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drafter_client.errors import TraceError
from drafter_client.trace.writer import MOST, ROUNDS, RUNS, SCHEMA, TOKENS, Column, TraceTable, run_file
from lab.user_files import first_mistake

Value = str | int | float | None  # None: not known, an empty cell
Record = dict[str, Value]


_Number = Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
_Whole = Annotated[int, Field(ge=-MOST, le=MOST)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class Prefill(_Part):
    """A prefill: milliseconds; `sent_ms` and `arrived_ms` count from the begin of the run."""

    sent_ms: _Number
    queue_ms: _Number
    forward_ms: _Number
    arrived_ms: _Number


class RecordedStep(_Part):
    """A draft step: milliseconds since the run began, the tokens read, the branches, and a draft token for each."""

    began_ms: _Number
    ended_ms: _Number
    read: _Whole | None = None
    width: _Whole | None = None
    drafts: list[_Whole] = []


class SelfContinuationPass(_Part):
    """A pass of self-continuation: its duration, and when the drafter learnt of it, in milliseconds."""

    forward_ms: _Number
    arrived_ms: _Number


class RoundDrafts(_Part):
    """The draft tokens of a verify request: ids, the drafter's probabilities, and whether each was looked up."""

    drafts: list[_Whole] = []
    confidence: list[_Number | None] = []
    from_lookup: list[bool] = []


class TokenDraft(_Part):
    """The draft token that was accepted at a token's place, or that the token replaces: its round, its id, its source,
    and the drafter's probability of it. None: there was none, or it is not known."""

    round: _Whole | None = None
    draft: _Whole | None = None
    draft_source: str | None = None
    confidence: _Number | None = None


class RunDetail(_Part):
    """The whole object of a run. `machine`: the drafter's. `text`, `pieces`: empty if the text was not recorded."""

    machine: dict[str, str] = {}
    settings: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    prefills: list[Prefill]
    rounds: list[RoundDrafts] = []
    steps: list[RecordedStep]
    self_continuation_passes: list[SelfContinuationPass]
    tokens: list[TokenDraft] = []
    text: list[str] = []
    pieces: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class RunTrace:
    """One run: its record in `runs.csv` (`metrics`), its records in the other tables, and more from the JSON file.

    `detail`: the JSON file.

    Times are milliseconds, points in time count from the begin of the run.
    """

    of: int  # number of runs in the folder
    metrics: Record
    rounds: list[Record]
    tokens: list[Record]
    detail: RunDetail


def read_run(folder: Path, number: int | None = None) -> RunTrace:
    """Read run `number` of `folder`. None: the last run in which draft tokens were judged, or else the last run.

    Raises TraceError if there is no such run, or if a file cannot be read.
    """
    records = _records(folder)
    found: Record | None
    if number is None:
        found = next((each for each in reversed(records) if each["drafted"]), records[-1])
    else:
        found = next((each for each in records if each["run"] == number), None)
    if found is None:
        existing = ", ".join(str(each["run"]) for each in records)
        raise TraceError(f"there is no run {number} in {folder / RUNS.file}: it has {existing}")
    return _read(folder, len(records), [found])[0]


def read_runs(folder: Path) -> list[RunTrace]:
    """Read all runs of `folder`, in the order in which they ended. Raises TraceError if a file cannot be read."""
    records = _records(folder)
    return _read(folder, len(records), records)


def _records(folder: Path) -> list[Record]:
    """The records of all runs, at least one."""
    records = read_table(folder, RUNS)
    if not records:
        raise TraceError(f"no run has been written to {folder} yet: give --profile {folder} to a run")
    return records


def _read(folder: Path, of: int, records: Sequence[Record]) -> list[RunTrace]:
    wanted = {_run(record) for record in records}
    rounds, tokens = (_by_run(read_table(folder, table, wanted)) for table in (ROUNDS, TOKENS))
    return [_whole(folder, of, record, rounds[_run(record)], tokens[_run(record)]) for record in records]


def _whole(folder: Path, of: int, record: Record, rounds: list[Record], tokens: list[Record]) -> RunTrace:
    path = run_file(folder, _run(record))
    detail = _parsed(_text(path), path)
    parts = (("rounds", detail.rounds, rounds), ("tokens", detail.tokens, tokens), ("text", detail.text, tokens))
    for name, there, listed in parts:
        if there and len(there) != len(listed):
            raise TraceError(f"{path}: {name} has {len(there)} entries, and the tables have {len(listed)}")
    return RunTrace(of, record, rounds, tokens, detail)


def _run(record: Record) -> int:
    return int(record["run"] or 0)


def _by_run(records: Iterable[Record]) -> defaultdict[int, list[Record]]:
    found = defaultdict[int, list[Record]](list)
    for record in records:
        found[_run(record)].append(record)
    return found


def read_table(folder: Path, table: TraceTable, runs: Collection[int] | None = None) -> list[Record]:
    """Read all records of one table, or only those of some runs; damaged records of other runs are then ignored.

    Raises TraceError if the file cannot be read or is not this table.
    """
    path = folder / table.file
    lines = csv.reader(_text(path).splitlines(keepends=True), strict=True)
    records = []
    try:
        if next(lines, None) != table.names:
            raise ValueError("these are not the columns that this version writes")
        for cells in lines:
            if cells and (runs is None or _number(cells[0]) in runs):
                records.append(_record(table, cells))
    except (ValueError, csv.Error) as error:
        raise TraceError(f"{path}, line {max(1, lines.line_num)}: {error}: is it a trace?") from None
    return records


def _record(table: TraceTable, cells: Sequence[str]) -> Record:
    """The record in the cells of one line. Raises ValueError with the reason."""
    if len(cells) != len(table.columns):
        raise ValueError(f"it has {len(cells)} cells, not {len(table.columns)}")
    return {column.name: _value(column, cell) for column, cell in zip(table.columns, cells, strict=True)}


def _value(column: Column, cell: str) -> Value:
    """The value of a cell; None for an empty cell. Raises ValueError with the reason."""
    if not cell:
        if column.needed:
            raise ValueError(f"{column.name} is missing")
        return None
    try:
        value = column.kind(cell)
    except ValueError:
        expected = "a whole number" if column.kind is int else "a number"
        raise ValueError(f"{column.name} is {cell!r}, not {expected}") from None
    if not isinstance(value, str) and not abs(value) <= MOST:
        raise ValueError(f"{column.name} is {cell!r}, not a number of at most 2^53 in size")
    return value


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


def _parsed(text: str, path: Path) -> RunDetail:
    """The object in a file's `text`. Raises TraceError, which names the line, or the place in the object."""
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}, line {error.lineno}: {error.msg}: is it a trace?") from None
    except (ValueError, RecursionError):  # a number with thousands of digits, or thousands of nested lists
        what = "a number is too long, or a list nested too deeply"
        raise TraceError(f"{path}, line 1: {what}: is it a trace?") from None
    if isinstance(body, dict) and body.get("schema") != SCHEMA:
        raise TraceError(
            f"{path}: another version wrote it: its schema is {body.get('schema')!r}, this version reads {SCHEMA}"
        )
    try:
        return RunDetail.model_validate(body)
    except ValidationError as error:
        raise TraceError(f"{path}, line 1: {first_mistake(error)}: is it a trace?") from None
