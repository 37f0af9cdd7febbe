"""Write a folder of traces: three tables to which each run is appended, and one JSON file for each run.

Several runs may write at once, also from other processes. `docs/traces.md` has the meaning and the unit of each column.
"""

import csv
import io
import json
import os
import platform
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from backends.machine import cores, processor
from drafter_client.errors import TraceError
from drafter_client.generation.events import Listener
from drafter_client.statistics import Stats
from drafter_client.trace.recorder import Recorder
from specpair import shared_files

MOST = 2.0**53  # the largest absolute value of a number; seeds are below it, too


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    `kind`: type of its values.
    `needed`: its cells are never empty.
    """

    name: str
    kind: type[str] | type[int] | type[float]
    needed: bool = False

    def cell(self, value: object) -> str:
        """The cell for a value. It is empty for a value of another kind, which came from a faulty verifier."""
        if self.kind is str:
            return " ".join(value.split()) if isinstance(value, str) else ""
        if isinstance(value, bool):
            return str(int(value))
        if not isinstance(value, int | float) or not abs(value) <= MOST:
            return ""
        if isinstance(value, int):
            return str(value)
        return f"{value + 0.0:.8g}" if self.kind is float else ""  # keeps microseconds within a minute; avoids -0


@dataclass(frozen=True, slots=True)
class TraceTable:
    """One CSV file: a header, and a line for each record."""

    file: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def header(self) -> str:
        return _lines([self.names])

    def lines(self, records: Iterable[Mapping[str, object]]) -> str:
        """A line for each record; other keys than the columns are ignored. Raises KeyError if a column is missing."""
        return _lines([column.cell(record[column.name]) for column in self.columns] for record in records)


def _lines(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _table(file: str, columns: str) -> TraceTable:
    """`columns`: names and kinds, as in `run:int!`; those with an exclamation mark are needed."""
    kinds = {"str": str, "int": int, "float": float}
    parted = (column.partition(":") for column in columns.split())
    return TraceTable(
        file, tuple(Column(name, kinds[kind.rstrip("!")], kind.endswith("!")) for name, _, kind in parted)
    )


RUNS = _table(
    "runs.csv",
    "run:int! started:str! mode:str! model:str draft_model:str strategy:str threshold:float temperature:float "
    "top_k:int top_p:float seed:int prompt_tokens:int! generated_tokens:int! finish_reason:str error:str "
    "tokens_per_second:float ttft_ms:float total_ms:float! prefill_ms:float! drafting_ms:float! "
    "network_ms:float! queue_ms:float! verify_ms:float! rounds:int! drafts_sent:int! drafted:int! accepted:int! "
    "acceptance_rate:float mean_acceptance_length:float looked_up:int! looked_up_accepted:int! "
    "target_decoded_tokens:int! mispredicted:int! next_draft_ready:int! bytes_sent:int! bytes_received:int!",
)

ROUNDS = _table(
    "rounds.csv",
    "run:int! round:int! schedule:str! position:int! k:int! judged:int accepted:int ran:int looked_up:int "
    "confidence_mean:float confidence_min:float draft_ms:float! sent_ms:float! rtt_ms:float network_ms:float "
    "queue_ms:float forward_ms:float arrived_ms:float committed:int",
)

TOKENS = _table("tokens.csv", "run:int! position:int! token:int! source:str! target_decoded:int! committed_ms:float!")

TABLES = (RUNS, ROUNDS, TOKENS)
SCHEMA = 1  # version of the object
_writing = threading.Lock()  # the only lock on Windows: there, only one process at a time may write to a folder


def append(path: Path, header: str, lines: str = "") -> None:
    """Append `lines` to the file, all of them or none; `header` comes first if the file is new or empty.

    Without lines this checks that the file can be written. Raises TraceError if it cannot, or if it begins with another
    header.
    """
    try:
        with _writing, open(path, "a+b", buffering=0) as file:
            shared_files.lock(file.fileno(), wait=True)
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
            rest = text.encode(errors="backslashreplace")
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except BaseException:  # a full disk or Ctrl-C: remove the incomplete lines
                file.truncate(end)
                raise
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> TraceError:
    return TraceError(f"the trace {path} cannot be written: {error.strerror}")


class TraceFolder:
    """Writes traces to one folder, which is created if missing."""

    def __init__(
        self, folder: Path | str, today: Callable[[], datetime] = lambda: datetime.now(tz=UTC), *, text: bool = False
    ) -> None:
        """`text`: whether the characters of the text and of its draft tokens are recorded, too.

        Raises TraceError if the folder cannot be written, so that a long run does not fail at its end.
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
        as of then and `settings`, the options of the text. Raises TraceError if the trace cannot be written."""
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
            # The prediction is a text, which a trace must not hold.
            "settings": {name: value for name, value in settings.items() if name != "prediction"},
            "metrics": metrics,
            "prefills": recorder.prefills(),
            "rounds": rounds,
            "steps": recorder.steps(),
            "self_continuation_passes": recorder.self_continuation_passes(),
            "tokens": tokens,
            **(_text_fields(recorder, rounds, tokens, metrics) if self._text else {}),
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
    return folder / f"run-{number}.json"


@cache
def _machine() -> dict[str, str]:
    return {"processor": processor(), "cores": f"{cores()}", "system": f"{platform.system()} {platform.release()}"}


def _text_fields(
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
