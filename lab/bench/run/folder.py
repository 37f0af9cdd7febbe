"""The folder of a run beside its records: the cases as they were prepared, so that a run goes on without its flags."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from lab.bench.errors import BadRecords
from lab.bench.load.jobs import PreparedCase
from lab.bench.record_files import write_run
from lab.bench.records import Run
from specpair import shared_files

CASES = "cases.json"
_CASES = TypeAdapter(tuple[PreparedCase, ...])


def write_folder(folder: Path, run: Run, cases: Sequence[PreparedCase]) -> None:
    """Make the folder of a new run; what names it a run is written last. Raises BadRecords."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with shared_files.replacing(folder / CASES) as file:
            file.write(_CASES.dump_json(tuple(cases), indent=1) + b"\n")
    except OSError as error:
        raise BadRecords(f"results cannot be kept in {folder}: {error.strerror or error}") from None
    write_run(folder, run)


def read_cases(folder: Path) -> tuple[PreparedCase, ...]:
    """The cases of the run in a folder. Raises BadRecords."""
    path = folder / CASES
    try:
        return _CASES.validate_json(path.read_bytes())
    except OSError as error:
        raise BadRecords(f"{path} cannot be read: {error.strerror or error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BadRecords(f"{path} has no cases that can be read ({where}: {first['msg']}): begin a new run") from None
