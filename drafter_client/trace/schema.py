"""What a trace consists of: the columns of its tables, in order, and `run-N.json`. `docs/traces.md` has the meaning and
the unit of each.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drafter_client.errors import TraceError

Value = str | int | float | None  # None: not known, an empty cell
Record = dict[str, Value]

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

    def value(self, cell: str) -> Value:
        """The value that a cell holds; None for an empty cell. Raises ValueError that says what is wrong."""
        if not cell:
            if self.needed:
                raise ValueError(f"{self.name} is missing")
            return None
        try:
            value = self.kind(cell)
        except ValueError:
            expected = "a whole number" if self.kind is int else "a number"
            raise ValueError(f"{self.name} is {cell!r}, not {expected}") from None
        if not isinstance(value, str) and not abs(value) <= MOST:
            raise ValueError(f"{self.name} is {cell!r}, not a number of at most 2^53 in size")
        return value


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
        """The first line of the file: the names of the columns."""
        return _lines([self.names])

    def lines(self, records: Iterable[Mapping[str, object]]) -> str:
        """A line for each record; other keys than the columns are ignored. Raises KeyError if a column is missing."""
        return _lines([column.cell(record[column.name]) for column in self.columns] for record in records)

    def row(self, cells: Sequence[str]) -> Record:
        """The record that the cells of one line hold. Raises ValueError that says what is wrong."""
        if len(cells) != len(self.columns):
            raise ValueError(f"it has {len(cells)} cells, not {len(self.columns)}")
        return {column.name: column.value(cell) for column, cell in zip(self.columns, cells, strict=True)}


def _lines(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


_RUN = Column("run", int, needed=True)

RUNS = TraceTable(
    "runs.csv",
    (
        _RUN,
        Column("started", str, needed=True),
        Column("mode", str, needed=True),
        Column("model", str),
        Column("draft_model", str),
        Column("strategy", str),
        Column("threshold", float),
        Column("temperature", float),
        Column("top_k", int),
        Column("top_p", float),
        Column("seed", int),
        Column("prompt_tokens", int, needed=True),
        Column("generated_tokens", int, needed=True),
        Column("finish_reason", str),
        Column("error", str),
        Column("tokens_per_second", float),
        Column("ttft_ms", float),
        Column("total_ms", float, needed=True),
        Column("prefill_ms", float, needed=True),
        Column("drafting_ms", float, needed=True),
        Column("network_ms", float, needed=True),
        Column("queue_ms", float, needed=True),
        Column("verify_ms", float, needed=True),
        Column("rounds", int, needed=True),
        Column("drafts_sent", int, needed=True),
        Column("drafted", int, needed=True),
        Column("accepted", int, needed=True),
        Column("acceptance_rate", float),
        Column("mean_acceptance_length", float),
        Column("looked_up", int, needed=True),
        Column("looked_up_accepted", int, needed=True),
        Column("target_decoded_tokens", int, needed=True),
        Column("mispredicted", int, needed=True),
        Column("next_draft_ready", int, needed=True),
        Column("bytes_sent", int, needed=True),
        Column("bytes_received", int, needed=True),
    ),
)

ROUNDS = TraceTable(
    "rounds.csv",
    (
        _RUN,
        Column("round", int, needed=True),
        Column("schedule", str, needed=True),
        Column("position", int, needed=True),
        Column("k", int, needed=True),
        Column("judged", int),
        Column("accepted", int),
        Column("ran", int),
        Column("looked_up", int),
        Column("confidence_mean", float),
        Column("confidence_min", float),
        Column("draft_ms", float, needed=True),
        Column("sent_ms", float, needed=True),
        Column("rtt_ms", float),
        Column("network_ms", float),
        Column("queue_ms", float),
        Column("forward_ms", float),
        Column("arrived_ms", float),
        Column("committed", int),
    ),
)

TOKENS = TraceTable(
    "tokens.csv",
    (
        _RUN,
        Column("position", int, needed=True),
        Column("token", int, needed=True),
        Column("source", str, needed=True),
        Column("target_decoded", int, needed=True),
        Column("committed_ms", float, needed=True),
    ),
)

TABLES = (RUNS, ROUNDS, TOKENS)


SCHEMA = 1  # version of the object

_Number = Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
_Whole = Annotated[int, Field(ge=-MOST, le=MOST)]
_KINDS = {"list_type": "is not a list", "model_type": "is not an object", "dict_type": "is not an object"}
_KINDS |= {"string_type": "is not a text", "bool_type": "is not true or false"}


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
    """A pass of self-continuation: its duration, and when the drafter heard of it, in milliseconds."""

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
    """The whole object. `machine`: the drafter's. `text`, `pieces`: empty where the text was not recorded."""

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


def parsed(text: str, path: Path) -> RunDetail:
    """The object in a file's `text`. Raises TraceError, which names the line, or the place in the object."""
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}, line {error.lineno}: {error.msg}: is it a trace?") from None
    except (ValueError, RecursionError):  # a number with thousands of digits, or thousands of nested lists
        raise _wrong(path, "it", "has a number too long or a list nested too deeply") from None
    if not isinstance(body, dict):
        raise _wrong(path, "it", "is not an object")
    if body.get("schema") != SCHEMA:
        raise TraceError(
            f"{path}: another version wrote it: its schema is {body.get('schema')!r}, this version reads {SCHEMA}"
        )
    try:
        return RunDetail.model_validate(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[0]
        said = _KINDS.get(found["type"], "is not a number of at most 2^53 in size")
        if found["type"] == "missing" and len(found["loc"]) == 1:
            said = "is missing"
        raise _wrong(path, ".".join(map(str, found["loc"])), said) from None


def _wrong(path: Path, name: str, what: str) -> TraceError:
    return TraceError(f"{path}, line 1: {name} {what}: is it a trace?")
