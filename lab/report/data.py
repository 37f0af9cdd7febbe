"""What a report holds of a run as JSON, for its script and for other programs: the tables of the trace by columns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from drafter_client.trace.writer import ROUNDS
from lab.report.reader import Prefill, RecordedStep, RoundDrafts, RunTrace, SelfContinuationPass, TokenDraft
from lab.report.recorded import modes, outages

VERSION = 1  # of this form
_TOKEN = ("position", "token", "source", "committed_ms")
_SECRET = ("cache_salt",)  # settings that others must not have
# What tells the text, or its tokens to who has the tokenizer.
_TELLING = {"rounds": ("drafts",), "steps": ("drafts",), "tokens": ("token", "draft"), "decisions": ("token", "draft")}


def run_data(run: RunTrace, *, text: bool) -> dict[str, Any]:
    """One run. docs/traces.md has its form.

    `text`: whether the text goes in, if it was recorded, and the ids of its tokens.
    """
    detail, record = run.detail, run.metrics
    metrics = {name: value for name, value in detail.metrics.items() if name not in ("token_ids", "decisions")}
    rounds = _columns(run.rounds, [name for name in ROUNDS.names if name != "run"])
    if detail.rounds:
        rounds |= _fields(detail.rounds, RoundDrafts)
    tables = {
        "prefills": _fields(detail.prefills, Prefill),
        "rounds": rounds,
        "steps": _fields(detail.steps, RecordedStep),
        "self_continuation_passes": _fields(detail.self_continuation_passes, SelfContinuationPass),
        "tokens": _columns(run.tokens, _TOKEN) | (_fields(detail.tokens, TokenDraft) if detail.tokens else {}),
        "modes": _columns([each._asdict() for each in modes(run)], ("mode", "tokens", "begin", "end")),
        "outages": _columns([each._asdict() for each in outages(run)], ("generated", "begin", "end")),
        "decisions": _decisions(detail.metrics.get("decisions"), len(run.tokens)),
    }
    told: dict[str, Any] = {"text": detail.text, "pieces": detail.pieces}
    if not text:
        metrics.pop("logprobs", None)
        told = {}
        tables = {
            name: {column: values for column, values in table.items() if column not in _TELLING.get(name, ())}
            for name, table in tables.items()
        }
    return {
        **{name: record[name] for name in ("run", "started", "error")},
        "machine": detail.machine,
        "settings": settings(run),
        "metrics": metrics,
        **tables,
        **told,
    }


def settings(run: RunTrace) -> dict[str, Any]:
    """The options of the text, without those that others must not have."""
    return {name: value for name, value in run.detail.settings.items() if name not in _SECRET}


def _decisions(told: Any, tokens: int) -> dict[str, list[Any]]:
    """The decisions of runs with `--verbose`, if there is one for each token."""
    if not isinstance(told, list) or len(told) != tokens or not all(isinstance(each, dict) for each in told):
        return {}
    return {name: [each.get(name) for each in told] for name in ("token", "p", "draft", "draft_p", "q", "verdict")}


def _columns(records: Sequence[Mapping[str, Any]], names: Iterable[str]) -> dict[str, list[Any]]:
    return {name: [record[name] for record in records] for name in names}


def _fields(parts: Sequence[BaseModel], kind: type[BaseModel]) -> dict[str, list[Any]]:
    return {name: [getattr(part, name) for part in parts] for name in kind.model_fields}
