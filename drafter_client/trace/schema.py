"""The tables of a profile: which columns in which order, and what they mean. `docs/profile.md` says the same."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Value = str | int | float | None  # None: not known, an empty cell
Row = dict[str, Value]

MOST = 2.0**53  # of anything that is counted or measured; seeds end below it, too


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `kind` is str, int or float; `needed`: it is never empty."""

    name: str
    kind: type[str] | type[int] | type[float]
    unit: str
    meaning: str
    needed: bool = False

    def cell(self, value: object) -> str:
        """As it is written. What is not of the kind is not known: it came from a verifier that says anything."""
        if self.kind is str:
            return " ".join(value.split()) if isinstance(value, str) else ""
        if isinstance(value, bool):
            return str(int(value))
        if not isinstance(value, int | float) or not abs(value) <= MOST:
            return ""
        if isinstance(value, int):
            return str(value)
        return f"{value + 0.0:.8g}" if self.kind is float else ""  # a minute to the microsecond; no -0

    def value(self, cell: str) -> Value:
        """What was written. Raises ValueError that says what is wrong."""
        if not cell:
            if self.needed:
                raise ValueError(f"{self.name} is missing")
            return None
        try:
            value = self.kind(cell)
        except ValueError:
            what = "whole number" if self.kind is int else "number"
            raise ValueError(f"{self.name} is {cell!r}, no {what}") from None
        if not isinstance(value, str) and not abs(value) <= MOST:
            raise ValueError(f"{self.name} is {cell!r}, no number that is counted or measured")
        return value


@dataclass(frozen=True, slots=True)
class TraceTable:
    """One CSV file: a header, and a line for each row."""

    file: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def header(self) -> str:
        """The first line."""
        return _lines([self.names])

    def lines(self, rows: Iterable[Mapping[str, object]]) -> str:
        """Rows as they are written; each has all columns, and nothing else. Raises KeyError where one is missing."""
        return _lines([column.cell(row[column.name]) for column in self.columns] for row in rows)

    def row(self, cells: Sequence[str]) -> Row:
        """One line, read. Raises ValueError that says what is wrong."""
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
        Column("started", str, "UTC", "when it began, ISO 8601", needed=True),
        Column("mode", str, "", "who drafts: `remote`, `fused`, `target`, or `auto` as chosen on the way", needed=True),
        Column("model", str, "", "the target"),
        Column("draft_model", str, "", "what drafts"),
        Column("strategy", str, "", "how drafts are accepted"),
        Column("threshold", float, "share", "of the strategy of that name, which is lossy: what it takes drafts above"),
        Column("temperature", float, "", "0: greedy"),
        Column("top_k", int, "tokens", "0: off"),
        Column("top_p", float, "share", "1: off"),
        Column("seed", int, "", "of the sampling"),
        Column("prompt_tokens", int, "tokens", "the prompt", needed=True),
        Column("generated_tokens", int, "tokens", "what was committed behind it", needed=True),
        Column("finish_reason", str, "", "`stop`, `length`; empty: the run was broken off"),
        Column("error", str, "", "kind of the error that broke it off"),
        Column("tokens_per_second", float, "1/s", "over the whole run, prefill included"),
        Column("ttft_ms", float, "ms", "time to the first token", needed=True),
        Column("total_ms", float, "ms", "the whole run", needed=True),
        Column("prefill_ms", float, "ms", "the target's passes over the prompt", needed=True),
        Column("drafting_ms", float, "ms", "draft steps", needed=True),
        Column("network_ms", float, "ms", "what exchanges took beyond the verifier's own times", needed=True),
        Column("queue_ms", float, "ms", "waiting at the verifier", needed=True),
        Column("verify_ms", float, "ms", "the target's passes over guesses", needed=True),
        Column("rounds", int, "", "guesses that the verifier ran its model for", needed=True),
        Column("drafts_sent", int, "", "guesses answered, out of date or not", needed=True),
        Column("drafted", int, "drafts", "judged by the target", needed=True),
        Column("accepted", int, "drafts", "of these, those that stood", needed=True),
        Column("acceptance_rate", float, "share", "accepted / drafted"),
        Column("mean_acceptance_length", float, "tokens", "1 + accepted / rounds"),
        Column("looked_up", int, "drafts", "of those judged, looked up in the text", needed=True),
        Column("looked_up_accepted", int, "drafts", "of these, those that stood", needed=True),
        Column(
            "target_decoded_tokens",
            int,
            "tokens",
            "committed by the verifier by itself, no guess being there",
            needed=True,
        ),
        Column("mispredicted", int, "tokens", "committed, and not what the drafter had expected", needed=True),
        Column(
            "next_draft_ready", int, "tokens", "of these, those behind which drafts were ready at once", needed=True
        ),
        Column("bytes_sent", int, "bytes", "by the drafter", needed=True),
        Column("bytes_received", int, "bytes", "by the drafter", needed=True),
    ),
)

ROUNDS = TraceTable(
    "rounds.csv",
    (
        _RUN,
        Column("round", int, "", "number of the guess, from 1, in the order of sending", needed=True),
        Column("schedule", str, "", "what paid when it left: `lockstep`, `overlapped`, `self-continued`", needed=True),
        Column("position", int, "tokens", "known to be committed when it left, prompt included", needed=True),
        Column("k", int, "drafts", "in the guess", needed=True),
        Column("judged", int, "drafts", "that the target's model ran for: the last ones; empty: no answer came"),
        Column("accepted", int, "drafts", "of those judged, those that stood"),
        Column(
            "ran",
            int,
            "0, 1",
            "whether the model ran for it; not for a guess that is out of date, or that a longer one contains",
        ),
        Column("looked_up", int, "drafts", "of those judged, looked up in the text and not asked of the model"),
        Column("confidence_mean", float, "share", "the drafter's own probability of its drafts, mean over the guess"),
        Column("confidence_min", float, "share", "and the lowest"),
        Column("draft_ms", float, "ms", "draft steps that ended since the guess before was sent", needed=True),
        Column("sent_ms", float, "ms", "when it was sent, since the run began", needed=True),
        Column("rtt_ms", float, "ms", "from there to its answer"),
        Column("network_ms", float, "ms", "of these, neither queue nor forward pass"),
        Column("queue_ms", float, "ms", "of these, waiting at the verifier"),
        Column("forward_ms", float, "ms", "of these, the target's pass"),
        Column("arrived_ms", float, "ms", "when its answer came, since the run began"),
        Column("committed", int, "tokens", "that became known by it"),
    ),
)

TOKENS = TraceTable(
    "tokens.csv",
    (
        _RUN,
        Column("position", int, "tokens", "before it, prompt included", needed=True),
        Column("token", int, "", "its id", needed=True),
        Column(
            "source",
            str,
            "",
            "`accepted` draft, `recovered` in place of one, `bonus` where none was, `target_decoded` by itself",
            needed=True,
        ),
        Column("target_decoded", int, "0, 1", "whether it is of the source `target_decoded`", needed=True),
        Column("committed_ms", float, "ms", "when it became known, since the run began", needed=True),
    ),
)

TABLES = (RUNS, ROUNDS, TOKENS)
