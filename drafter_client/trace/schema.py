"""The tables of a trace: their columns, in order. `docs/traces.md` has the meaning and the unit of each."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
