"""Read a folder of traces. A file that is not part of a trace raises a TraceError with the file and the line."""

import csv
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from drafter_client.errors import TraceError
from drafter_client.trace.schema import ROUNDS, RUNS, TOKENS, Record, RunDetail, TraceTable, parsed
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
    `detail`: the JSON file.

    Times are milliseconds, points in time count from the begin of the run.
    """

    of: int  # number of runs in the folder
    metrics: Record
    rounds: list[Record]
    tokens: list[Record]
    prefills: list[Exchange]
    steps: list[tuple[float, float]]
    self_continuation_passes: list[tuple[float, float]]
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
    """The records of all runs, of which there is one at least."""
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
    detail = parsed(_text(path), path)
    parts = (("rounds", detail.rounds, rounds), ("tokens", detail.tokens, tokens), ("text", detail.text, tokens))
    for name, there, listed in parts:
        if there and len(there) != len(listed):
            raise TraceError(f"{path}: {name} has {len(there)} entries, and the tables have {len(listed)}")
    return RunTrace(
        of=of,
        metrics=record,
        rounds=rounds,
        tokens=tokens,
        prefills=[Exchange(each.sent_ms, each.queue_ms, each.forward_ms, each.arrived_ms) for each in detail.prefills],
        steps=[(each.began_ms, each.ended_ms) for each in detail.steps],
        self_continuation_passes=[(each.forward_ms, each.arrived_ms) for each in detail.self_continuation_passes],
        detail=detail,
    )


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
