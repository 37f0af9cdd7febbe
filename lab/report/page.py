"""Recorded runs as one HTML file that needs no other: figures and tables, drawings by the script in it, and the data as
JSON, for that script and for other programs: the tables of the trace by columns."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from pydantic import BaseModel

from drafter_client.display import panel_rows
from drafter_client.display.panel_rows import ms, share, unit
from drafter_client.statistics import Stats
from drafter_client.trace.writer import ROUNDS
from lab.report.reader import Prefill, RecordedStep, RoundDrafts, RunTrace, SelfContinuationPass, TokenDraft
from lab.report.recorded import (
    acceptance_by_depth,
    headline,
    modes,
    outages,
    pass_widths,
    started,
    statistics,
    timed,
)
from lab.reports.document import contents, document, folded, table, terms
from lab.reports.markup import Markup, tag
from lab.reports.scripts import bundled
from specpair.extras import installed_version
from specpair.numbers import counted, percentages

VERSION = 1  # of this form
_TOKEN = ("position", "token", "source", "committed_ms")
_SECRET = ("cache_salt",)  # settings that others must not have
# What tells the text, or its tokens to who has the tokenizer.
_TELLING = {"rounds": ("drafts",), "steps": ("drafts",), "tokens": ("token", "draft"), "decisions": ("token", "draft")}


def run_data(run: RunTrace, *, text: bool) -> dict[str, Any]:
    """The data of one run, in the form of docs/traces.md.

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
    """The options of the text, without the secret ones."""
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


ENTRY = "report.js"
# Whose files the page is made of: those that all pages share, those of the live page, its own.
_FOLDERS = (("specpair.http_service", "page"), ("drafter_client.serve", "page"), ("lab.report", "scripts"))
_STYLES = ("drawings.css", "report.css")
_LANES = (
    ("drafting", "draft steps, on the drafter's machine"),
    ("wire", "requests and responses on their way; the way there and back are drawn as equally long"),
    ("queue", "waiting for the verifier's model while it worked for others"),
    ("pass", "forward passes of the verifier's model, over the prompt, over drafts, or by itself"),
)
_OUTAGE = ("outage", "no verifier, from the last token before it to the first one after it")
_KEYS = (
    "Arrow keys go from round to round, Home and End to the first and the last; plus and minus zoom, 0 shows the whole "
    "run, Page Up and Page Down move. Drag to move, Ctrl and the wheel zoom. Where spans are too many "
    "to be told apart, the height is the share of the time in which the lane was active."
)
_UNTIMED = (
    "Where the verifier wrote by itself (modes target and fused), the trace has tokens, but no passes: lanes are empty."
)


def page(runs: Sequence[RunTrace], *, text: bool) -> str:
    """The page of one or more runs.

    `text`: whether the text goes in, where it was recorded, and the ids of its tokens.

    Raises TraceError for a run whose metrics are none, ValueError for values that JSON has no form for.
    """
    code = _files()
    described = [(run, statistics(run)) for run in runs]
    several = len(runs) > 1
    links = [(_anchor(run), f"{run.metrics['run']}: {headline(run, stats)}") for run, stats in described]
    title = f"{counted(len(runs), 'recorded run')}" if several else panel_rows.title(described[0][1])
    return document(
        f"drafter report: {title}",
        [contents(links)] if several else [],
        (*(_section(run, stats, text=text) for run, stats in described), _definitions()),
        f"specpair {installed_version()}. Made from a trace by drafter report; its element “data” has it as JSON.",
        style="".join(code[name] for name in _STYLES),
        script=bundled(ENTRY, code),
        data={"version": VERSION, "text": text, "runs": [run_data(run, text=text) for run in runs]},
    )


def _files() -> dict[str, str]:
    return {
        each.name: each.read_text(encoding="utf-8")
        for package, folder in _FOLDERS
        for each in files(package).joinpath(folder).iterdir()
        if each.name.endswith((".js", ".css"))
    }


def _anchor(run: RunTrace) -> str:
    return f"run-{run.metrics['run']}"


def _section(run: RunTrace, stats: Stats, *, text: bool) -> Markup:
    return tag(
        "section",
        tag("h2", f"Run {run.metrics['run']}: {panel_rows.title(stats)}"),
        tag("p", ", ".join([*panel_rows.headline(stats), started(run)]), class_="soft"),
        *_notes(stats),
        tag("div", _what_ran(run, stats), _figures(stats), class_="two"),
        tag("h3", "Timeline"),
        _legend([*_LANES, *([_OUTAGE] if outages(run) else [])]),
        _drawn("timeline"),
        tag("p", " ".join([_KEYS, *([] if timed(stats) else [_UNTIMED])]), class_="soft keys"),
        tag("h3", "Over time"),
        _drawn("over-time"),
        tag("div", *_tables(run, stats), class_="two"),
        *_modes(run, stats),
        tag("h3", "The text by its tokens' sources"),
        tag("p", _of_the_text(run, text=text), class_="soft"),
        _drawn("by-source"),
        id=_anchor(run),
        class_="run",
    )


def _drawn(name: str) -> Markup:
    """A placeholder that the script fills."""
    return tag("div", tag("p", "A script draws this, and scripts do not run here.", class_="soft"), class_=name)


def _legend(kinds: Sequence[tuple[str, str]]) -> Markup:
    return tag("ul", *(tag("li", _swatch(name), f"{name}: {meaning}") for name, meaning in kinds), class_="legend")


def _swatch(lane: str) -> Markup:
    drawn = tag("rect", x=0, y=3, width=16, height=10, class_=lane)
    return tag("svg", drawn, class_="mark", viewBox="0 0 16 16", aria_hidden="true")


def _notes(stats: Stats) -> Iterator[Markup]:
    said = [*panel_rows.notes(stats), *panel_rows.hints(stats)]
    if said:
        yield tag("ul", *(tag("li", each) for each in said), class_="said")


def _what_ran(run: RunTrace, stats: Stats) -> Markup:
    rows = [
        ("begun", started(run)),
        ("target", stats.model or "not recorded"),
        ("draft model", stats.draft_model or "none"),
        *((f"drafter's {name}", value) for name, value in run.detail.machine.items()),
        *([("ended early by", f"{run.metrics['error']}")] if run.metrics["error"] else []),
        # As the verifier reported them, and as asked for.
        *((name, _value(value)) for name, value in (stats.sampling | settings(run)).items() if value is not None),
    ]
    return tag("div", _titled("What ran", ("setting", "value"), rows), class_="words")


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _figures(stats: Stats) -> Markup:
    left, right = panel_rows.columns(stats)
    pairs = [row for couple in panel_rows.couples(stats) for row in couple]
    rows = [*left, *right, *pairs, *panel_rows.lines(stats)]
    shown = [row for row in rows if row[0] not in ("modes", "why")]
    return tag("div", _titled("Figures", ("metric", "value"), shown), class_="words")


def _tables(run: RunTrace, stats: Stats) -> Iterator[Markup]:
    if timed(stats):
        waits = panel_rows.bars(stats)
        shares = percentages(seconds for _, seconds in waits)
        times = [(name, ms(seconds), f"{part} %") for (name, seconds), part in zip(waits, shares, strict=True)]
        yield _titled("What the text waited for", ("for", "time", "share"), times)
    if depths := acceptance_by_depth(run.rounds):
        rows = [(f"{each.depth}", f"{each.drafts}", f"{each.accepted}", share(each.share)) for each in depths]
        yield _titled("Acceptance by depth", ("depth", "draft tokens", "accepted", "rate"), rows)
    if widths := pass_widths(run):
        passes = [
            (f"{positions}", f"{count}", unit(forward_ms, "ms"), f"{1 + accepted / count:.2f}")
            for positions, count, accepted, forward_ms in widths
        ]
        yield _titled("Passes over drafts by width", ("positions", "passes", "mean time", "tokens a round"), passes)


def _modes(run: RunTrace, stats: Stats) -> Iterator[Markup]:
    if stats.turns:
        rows = [(each.mode, f"{each.tokens}", _from_to(each.begin, each.end)) for each in modes(run)]
        yield _titled("Modes", ("mode", "tokens", "from, to"), rows)
        if stats.why:
            yield tag("p", f"Why: {stats.why}")
    if found := outages(run):
        times = [(f"{each.generated}", _from_to(each.begin, each.end)) for each in found]
        yield _titled("Outages", ("tokens before", "without the verifier"), times)


def _from_to(begin: float, end: float) -> str:
    return f"{begin:.0f} to {end:.0f} ms"


def _of_the_text(run: RunTrace, *, text: bool) -> str:
    if not text:
        return "The text was left out of this file, and so were the ids of its tokens. Each mark is a token."
    if not run.detail.text:
        return "The trace holds ids of tokens only, which are shown: --profile-text records the text, too."
    return (
        "Point at a token, or use the arrow keys: what is known of it stands below. Control characters are spelled out."
    )


def _titled(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    return tag("div", tag("h3", title), table(headings, rows, title))


def _definitions() -> Markup:
    words = (
        ("round", "A verify request for which the target ran its model."),
        ("tokens a round", "1 + accepted draft tokens / rounds: the mean acceptance length."),
        ("acceptance rate", "Draft tokens accepted / draft tokens that the target judged."),
        ("positions", "What a pass computes of this text: one position, and one more for each judged draft token."),
        (
            "TTFT, ITL, TPOT",
            "Time to the first token, from one token to the next, of a token after the first on average.",
        ),
        ("outage", "A time without the verifier: from the last token before it to the first one after it."),
        ("times", "Milliseconds on the drafter's clock, but queue and pass, which the verifier measures."),
    )
    return tag(
        "section",
        tag("h2", "Definitions"),
        folded("What the words mean", terms([(word, [said]) for word, said in words])),
        id="definitions",
    )
