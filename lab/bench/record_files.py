"""The files of a run: `run.json`, and `records.jsonl`, written line by line as requests end."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from pydantic import TypeAdapter, ValidationError

from lab.bench.errors import BadRecords
from lab.bench.records import FORMAT, MeasuredRequest, Results, Run
from lab.user_files import first_mistake
from specpair import shared_files

RUN, RECORDS = "run.json", "records.jsonl"
_RUN, _RECORD = TypeAdapter(Run), TypeAdapter(MeasuredRequest)


def read_results(folder: Path) -> Results:
    """The results in the folder of a run, complete or not. A truncated last line is left out. Of a request that a
    resumed run repeated, the later record counts. Raises BadRecords."""
    run, path = read_run(folder), folder / RECORDS
    with _errors_named(path):
        records, _ = parse_records(path.read_bytes() if path.exists() else b"", str(path))
    return Results(run, [*{(each.side, *each.pairing): each for each in records if not each.is_warm_up}.values()])


def read_run(folder: Path) -> Run:
    """The plan of a run. Raises BadRecords."""
    path = folder / RUN
    if not path.is_file():
        raise BadRecords(f"{folder} is no folder of 'drafter bench': it has no {RUN}")
    with _errors_named(path):
        data = path.read_bytes()
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        raise BadRecords(f"{path} is no JSON: was it cut off? Begin a new run in another folder") from None
    if type(given) is not dict or given.get("format") != FORMAT:
        raise BadRecords(f"{path} is not of the format {FORMAT}: read it with the version that wrote it")
    try:
        return _RUN.validate_json(data)
    except ValidationError as error:
        _refuse(error, str(path), "begin a new run in another folder")


def parse_records(data: bytes, name: str) -> tuple[list[MeasuredRequest], int]:
    """The records in the content of the file called `name`, and the number of bytes that they take: without a last
    line that was cut off. Raises BadRecords, which names the line."""
    *lines, _ = data.split(b"\n")
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(_RECORD.validate_json(line))
        except ValidationError as error:
            _refuse(error, f"{name}, line {number}", "delete the line, and --resume asks again what it held")
    return records, sum(len(line) + 1 for line in lines)


def _refuse(error: ValidationError, where: str, advice: str) -> NoReturn:
    raise BadRecords(f"{where}: this is no record of 'drafter bench' ({first_mistake(error)}): {advice}")


def encode_record(record: MeasuredRequest) -> bytes:
    """A record as its line, with the line feed. Fields that have their default are left out."""
    defaults = {each.name: each.default for each in MeasuredRequest.__dataclass_fields__.values()}
    kept = {name: value for name, value in asdict(record).items() if value != defaults[name]}
    return json.dumps(kept, separators=(",", ":")).encode() + b"\n"


class RecordsWriter:
    """Appends records to those in the folder of a run, which no other process may use until `close`. Raises BadRecords.

    `records`: those that the folder has, and those that were added.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RECORDS
        with _errors_named(self._path):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            self._descriptor = os.open(self._path, flags, 0o666)
            try:
                if not shared_files.lock(self._descriptor, wait=False):
                    raise BadRecords(f"another run writes to {folder}: wait for its end, or give another --output")
                self.records, whole = parse_records(self._path.read_bytes(), str(self._path))
                os.ftruncate(self._descriptor, whole)
            except BaseException:
                os.close(self._descriptor)
                raise

    def add(self, record: MeasuredRequest) -> None:
        """Write and flush a record at once."""
        line = encode_record(record)
        with _errors_named(self._path):
            while line:
                line = line[os.write(self._descriptor, line) :]
        self.records.append(record)

    def close(self) -> None:
        os.close(self._descriptor)


def write_run(folder: Path, run: Run) -> None:
    """Make the folder of a new run. Raises BadRecords, also if the folder has a run already."""
    path = folder / RUN
    with _errors_named(path):
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists():
            raise BadRecords(f"{folder} has a run already: continue with --resume {folder}, or give another --output")
        with shared_files.replacing(path) as file:
            file.write(_RUN.dump_json(run, indent=2) + b"\n")


@contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadRecords(f"{path} cannot be read or written: {error.strerror or error}") from None
