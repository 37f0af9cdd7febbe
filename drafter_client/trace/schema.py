"""The tables of a trace: their columns, in order, and what they mean. `docs/profile.md` documents the same."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Value = str | int | float | None  # None: not known, an empty cell
Record = dict[str, Value]

MOST = 2.0**53  # the largest absolute value of a number; seeds are below it, too


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table. `kind`: type of its values. `needed`: its cells are never empty."""

    name: str
    kind: type[str] | type[int] | type[float]
    unit: str
    meaning: str
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


_RUN = Column("run", int, "", "number of the run, from 1; the same in all files", needed=True)

RUNS = TraceTable(
    "runs.csv",
    (
        _RUN,
        Column("started", str, "UTC", "begin of the run, ISO 8601", needed=True),
        Column("mode", str, "", "mode as requested: `remote`, `fused`, `target` or `auto`", needed=True),
        Column("model", str, "", "the target model"),
        Column("draft_model", str, "", "the draft model or other drafter"),
        Column("strategy", str, "", "the rule that decides which draft tokens are accepted"),
        Column(
            "threshold",
            float,
            "share",
            "for the strategy `threshold`, which is lossy: probability above which it accepts",
        ),
        Column("temperature", float, "", "0: greedy"),
        Column("top_k", int, "tokens", "0: off"),
        Column("top_p", float, "share", "1: off"),
        Column("seed", int, "", "seed of the sampling"),
        Column("prompt_tokens", int, "tokens", "length of the prompt", needed=True),
        Column("generated_tokens", int, "tokens", "tokens generated after the prompt", needed=True),
        Column("finish_reason", str, "", "`stop` or `length`; empty: the run ended early"),
        Column("error", str, "", "kind of the error that ended the run"),
        Column("tokens_per_second", float, "1/s", "over the whole run, prefill included"),
        Column("ttft_ms", float, "ms", "time to the first token", needed=True),
        Column("total_ms", float, "ms", "time of the whole run", needed=True),
        Column("prefill_ms", float, "ms", "the target's forward passes over the prompt", needed=True),
        Column("drafting_ms", float, "ms", "draft steps", needed=True),
        Column("network_ms", float, "ms", "time of requests beyond queue and forward pass", needed=True),
        Column("queue_ms", float, "ms", "time in the verifier's queue", needed=True),
        Column("verify_ms", float, "ms", "the target's forward passes over drafts", needed=True),
        Column("rounds", int, "", "verify requests that the verifier ran its model for", needed=True),
        Column("drafts_sent", int, "", "verify requests answered, stale ones included", needed=True),
        Column("drafted", int, "tokens", "draft tokens judged by the target", needed=True),
        Column("accepted", int, "tokens", "of these, accepted", needed=True),
        Column("acceptance_rate", float, "share", "accepted / drafted"),
        Column("mean_acceptance_length", float, "tokens", "1 + accepted / rounds"),
        Column("looked_up", int, "tokens", "of those judged, from prompt lookup", needed=True),
        Column("looked_up_accepted", int, "tokens", "of these, accepted", needed=True),
        Column(
            "target_decoded_tokens",
            int,
            "tokens",
            "decoded by the verifier's self-continuation",
            needed=True,
        ),
        Column("mispredicted", int, "tokens", "committed tokens that the drafter had not predicted", needed=True),
        Column(
            "next_draft_ready",
            int,
            "tokens",
            "of these, tokens after which the next draft was ready at once",
            needed=True,
        ),
        Column("bytes_sent", int, "bytes", "as counted by the drafter", needed=True),
        Column("bytes_received", int, "bytes", "as counted by the drafter", needed=True),
    ),
)

ROUNDS = TraceTable(
    "rounds.csv",
    (
        _RUN,
        Column("round", int, "", "number of the verify request, from 1, in the order of sending", needed=True),
        Column(
            "schedule", str, "", "schedule when it was sent: `lockstep`, `overlapped` or `self-continued`", needed=True
        ),
        Column(
            "position", int, "tokens", "tokens known to be committed when it was sent, prompt included", needed=True
        ),
        Column("k", int, "tokens", "draft tokens in the request", needed=True),
        Column("judged", int, "tokens", "draft tokens that the target judged: the last ones; empty: no response"),
        Column("accepted", int, "tokens", "of those judged, accepted"),
        Column(
            "ran",
            int,
            "0, 1",
            "whether the model ran for it; not for a stale request, or one that a longer request contains",
        ),
        Column("looked_up", int, "tokens", "of those judged, from prompt lookup instead of the draft model"),
        Column(
            "confidence_mean", float, "share", "the drafter's probability of its draft tokens, mean over the request"
        ),
        Column("confidence_min", float, "share", "the lowest of these probabilities"),
        Column("draft_ms", float, "ms", "draft steps that ended since the request before was sent", needed=True),
        Column("sent_ms", float, "ms", "time of sending, since the run began", needed=True),
        Column("rtt_ms", float, "ms", "round trip, from sending to the response"),
        Column("network_ms", float, "ms", "of the round trip, neither queue nor forward pass"),
        Column("queue_ms", float, "ms", "of the round trip, time in the verifier's queue"),
        Column("forward_ms", float, "ms", "of the round trip, the target's forward pass"),
        Column("arrived_ms", float, "ms", "arrival of the response, since the run began"),
        Column("committed", int, "tokens", "tokens first known from its response"),
    ),
)

TOKENS = TraceTable(
    "tokens.csv",
    (
        _RUN,
        Column("position", int, "tokens", "tokens before it, prompt included", needed=True),
        Column("token", int, "", "token id", needed=True),
        Column(
            "source",
            str,
            "",
            "token source: `accepted`, `recovered`, `bonus` or `target_decoded`",
            needed=True,
        ),
        Column("target_decoded", int, "0, 1", "whether `source` is `target_decoded`", needed=True),
        Column("committed_ms", float, "ms", "when the drafter knew it, since the run began", needed=True),
    ),
)

TABLES = (RUNS, ROUNDS, TOKENS)
