"""Write a folder of traces: three tables to which each run is appended, and one JSON file for each run.

Several runs may write at once, also from other processes.
"""

import json
import os
import platform
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any

from backends.machine import cores, processor
from drafter_client.errors import TraceError
from drafter_client.generation.events import Listener
from drafter_client.metrics.statistics import Stats
from drafter_client.trace.recorder import Recorder
from drafter_client.trace.schema import ROUNDS, RUNS, SCHEMA, TABLES, TOKENS, TraceTable
from specpair import shared_files

_writing = threading.Lock()  # the only lock on Windows: there, only one process at a time may write to a folder


def append(path: Path, header: str, lines: str = "") -> None:
    """Append `lines` to the file, all of them or none; `header` comes first if the file is new or empty.

    Without lines this checks that the file can be written. Raises TraceError if it cannot, or if it begins with another
    header.
    """
    try:
        with _opened(path) as file:
            end = file.seek(0, os.SEEK_END)
            text = lines
            if end == 0:
                text = header + lines
            else:
                file.seek(0)
                if file.read(len(header)) != header.encode():
                    raise TraceError(
                        f"{path}, line 1: these are not the columns that this version writes: name another folder"
                    )
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # an earlier writer was killed: its unfinished line stays separate
                    text = "\n" + lines
            _write(file, text.encode(errors="backslashreplace"), end)
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> TraceError:
    """The error for a file or folder of a trace that cannot be written."""
    return TraceError(f"the trace {path} cannot be written: {error.strerror}")


def _write(file: FileIO, text: bytes, end: int) -> None:
    try:
        while text:
            text = text[file.write(text) :]
    except BaseException:  # a full disk or Ctrl-C: remove the incomplete lines
        file.truncate(end)
        raise


@contextmanager
def _opened(path: Path) -> Iterator[FileIO]:
    """The file, open for reading and appending, and locked against other writers."""
    with _writing, open(path, "a+b", buffering=0) as file:
        shared_files.lock(file.fileno(), wait=True)
        yield file


_TEXTS = ("prediction",)  # options that hold a text, which a trace must not


class TraceFolder:
    """Writes traces to one folder, which is created if missing. Several runs may write at once, also from several
    processes."""

    def __init__(
        self,
        folder: Path | str,
        today: Callable[[], datetime] = lambda: datetime.now(tz=UTC),
        *,
        text: bool = False,
    ) -> None:
        """`today`: returns the present time with its zone.
        `text`: whether the characters of the text and of its draft tokens are recorded, too.

        Raises TraceError if the folder cannot be written.

        This is checked here, so that a long run does not fail at its end.
        """
        self._folder = folder = Path(folder)
        self._today, self._text = today, text
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(folder, error) from None
        for table in TABLES:
            append(folder / table.file, table.header)

    @contextmanager
    def run(self, stats: Stats, settings: Mapping[str, Any] | None = None) -> Iterator[Listener]:
        """A context that yields the listener for one text. At its end, in any way, the trace is written, with `stats`
        as of then.

        `settings`: the options of the text, as JSON values.

        Raises TraceError if the trace cannot be written.
        """
        started, recorder, broken_by = self._today(), Recorder(), None
        try:
            yield recorder.take
        except GeneratorExit:  # the reader closed the generation early: that is no error
            raise
        except BaseException as error:
            broken_by = type(error).__name__
            raise
        finally:
            head = {"started": started.astimezone(UTC).isoformat(timespec="milliseconds"), "error": broken_by}
            self._write(head, settings or {}, stats, recorder)

    def _write(self, head: dict[str, Any], settings: Mapping[str, Any], stats: Stats, recorder: Recorder) -> None:
        metrics, rounds, tokens = stats.metrics(), recorder.rounds(), _of_the_text(recorder.tokens(), stats)
        whole = {
            **head,
            "machine": _machine(),
            "settings": {name: value for name, value in settings.items() if name not in _TEXTS},
            "metrics": metrics,
            "prefills": recorder.prefills(),
            "rounds": rounds,
            "steps": recorder.steps(),
            "self_continuation_passes": recorder.self_continuation_passes(),
            "tokens": tokens,
            **(_told(recorder, rounds, tokens, metrics) if self._text else {}),
        }
        try:
            number = self._take_number()
            text = json.dumps({"schema": SCHEMA, "run": number, **whole})
            run_file(self._folder, number).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise unwritable(self._folder, error) from None
        # The record in `runs.csv` comes last, so that every run named there is complete.
        self._append(ROUNDS, number, rounds)
        self._append(TOKENS, number, tokens)
        self._append(RUNS, number, [head | _flat(metrics)])

    def _append(self, table: TraceTable, number: int, records: list[dict[str, Any]]) -> None:
        append(self._folder / table.file, table.header, table.lines({"run": number, **record} for record in records))

    def _take_number(self) -> int:
        """Take the next free number by creating its file: only one writer can create it."""
        existing = (re.fullmatch(r"run-([0-9]{1,9})\.json", path.name) for path in self._folder.iterdir())
        number = 1 + max((int(match[1]) for match in existing if match), default=0)
        while True:
            try:
                run_file(self._folder, number).touch(exist_ok=False)
                return number
            except FileExistsError:
                number += 1


def run_file(folder: Path, number: int) -> Path:
    """The JSON file of a run."""
    return folder / f"run-{number}.json"


@cache
def _machine() -> dict[str, str]:
    """The machine of the drafter: its times mean little without."""
    return {"processor": processor(), "cores": f"{cores()}", "system": f"{platform.system()} {platform.release()}"}


def _told(
    recorder: Recorder, rounds: list[dict[str, Any]], tokens: list[dict[str, Any]], metrics: Mapping[str, Any]
) -> dict[str, Any]:
    """The text: the characters of its tokens, and how each token that occurs is spelled."""
    committed = [each["token"] for each in tokens]
    judged = [each["draft"] for each in metrics["decisions"] or () if each["draft"] is not None]
    likeliest = [token for each in metrics["logprobs"] or () for token, _ in each["top"]]
    drafted = [token for each in rounds for token in each["drafts"]]
    occurring = [*committed, *drafted, *judged, *likeliest]
    return {"text": recorder.characters(committed), "pieces": recorder.pieces(occurring)}


def _flat(metrics: dict[str, Any]) -> dict[str, Any]:
    """The columns of `runs.csv`, from the object that `--json` prints."""
    sampling = metrics["sampling"] if isinstance(metrics["sampling"], dict) else {}
    asked = {name: sampling.get(name) for name in ("strategy", "threshold", "temperature", "top_k", "top_p", "seed")}
    times = {f"{name}_ms": took for name, took in metrics["times_ms"].items()}
    return metrics | asked | times


def _of_the_text(records: list[dict[str, Any]], stats: Stats) -> list[dict[str, Any]]:
    """One record for each token of the text, in order. In mode `auto`, tokens that did not become part of the text may
    have been recorded, too."""
    known: dict[int, dict[str, Any]] = {}
    for record in records:
        at = record["position"] - stats.prompt_tokens
        if 0 <= at < len(stats.token_ids) and record["token"] == stats.token_ids[at]:
            known.setdefault(at, record)
    return [known[at] for at in sorted(known)]
