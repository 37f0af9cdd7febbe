"""Rebuilds the statistics of a run from its trace, at the end and over time."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drafter_client.errors import TraceError
from drafter_client.options import Mode
from drafter_client.statistics import DRAFTING, PREFILL, VERIFY, Baseline, Span, Stats, Turn, WaitTimes, exchange
from drafter_client.trace.writer import MOST
from lab.report.reader import Record, RunTrace
from lab.user_files import first_mistake
from specpair.numbers import counted
from specpair.protocol.terminal_text import one_line
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.policy.schedule import Schedule

_Number = Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=MOST)]


class _Metrics(BaseModel):
    """The statistics that no table holds. Fields that a file lacks were added later."""

    model_config = ConfigDict(frozen=True)

    cached_tokens: _Count = 0
    prediction_tokens: _Count | None = None
    prediction_accepted: _Count = 0
    prediction_rejected: _Count = 0
    schedules: dict[Schedule, _Count] = {}
    token_ms: list[_Number] | None = None
    times_ms: dict[str, _Number] = {}
    sampling: dict[str, object] = {}
    ended_by: str | None = None
    baseline: Baseline | None = None
    turns: list[Turn] = []
    why: str = ""
    resumed: list[_Count] = []
    outages: _Count = 0
    outage_ms: _Number = 0.0
    verifiers: list[str] | None = None
    draft_failure: str | None = None


class ModeSpan(NamedTuple):
    """A stretch of a text in one mode. `begin`, `end`: milliseconds since the run began."""

    mode: str
    tokens: int
    begin: float
    end: float


class Outage(NamedTuple):
    """A time without the verifier: from the last token before it to the first one after it, milliseconds since the run
    began. `generated`: tokens of the text by then."""

    generated: int
    begin: float
    end: float


class PassWidth(NamedTuple):
    """Passes of the target that judged the same number of draft tokens, and so computed one position more.

    `accepted`: tokens, all of these passes together. `forward_ms`: the mean; None: no response told of one.
    """

    positions: int
    passes: int
    accepted: int
    forward_ms: float | None


class Depth(NamedTuple):
    """Acceptance at one depth: draft tokens that the target judged there, and those accepted. The first depth is 1."""

    depth: int
    drafts: int
    accepted: int

    @property
    def share(self) -> float:
        """The acceptance rate at this depth, 0 to 1."""
        return self.accepted / self.drafts


def acceptance_by_depth(rounds: Sequence[Record]) -> list[Depth]:
    """Acceptance at each depth, over all rounds.

    A draft token is accepted only if all before it are. So for drafts of equal length the acceptance rate falls with
    the depth; over drafts of different lengths it need not.
    """
    judged, accepted = ([_whole(record, name) for record in rounds] for name in ("judged", "accepted"))
    return [
        Depth(depth, sum(count >= depth for count in judged), sum(count >= depth for count in accepted))
        for depth in range(1, max(judged, default=0) + 1)
    ]


def statistics(run: RunTrace) -> Stats:
    """The statistics that the run had at its end, as far as they were recorded. Raises TraceError for metrics that are
    none."""
    record, more = run.metrics, _metrics(run)
    stats = Stats(
        model=_text(record, "model"),
        draft_model=_text(record, "draft_model"),
        mode=_text(record, "mode"),
        verifiers=more.verifiers or [],
        prompt_tokens=_whole(record, "prompt_tokens"),
        cached_tokens=more.cached_tokens,
        token_ids=[_whole(each, "token") for each in run.tokens],
        token_sources=list(_sources(run)),
        prediction_tokens=more.prediction_tokens,
        schedules=Counter(more.schedules),
        token_times=[each / 1e3 for each in more.token_ms or ()],
        ttft=_number(record, "ttft_ms") / 1e3,
        total_time=_number(record, "total_ms") / 1e3,
        outages=more.outages,
        outage_time=more.outage_ms / 1e3,
        times=WaitTimes(**{name: more.times_ms.get(name, 0.0) / 1e3 for name in WaitTimes.__slots__}),
        spans=[(part, begin / 1e3, end / 1e3) for part, begin, end in _spans(run)],
        finish_reason=record["finish_reason"] if isinstance(record["finish_reason"], str) else None,
        stopped=more.ended_by == "stop_string",
        sampling=more.sampling,
        baseline=more.baseline,
        turns=more.turns,
        why=more.why,
        resumed=more.resumed,
        failed=record["error"] not in (None, "KeyboardInterrupt"),
        draft_failure=more.draft_failure,
    )
    for name in ("rounds", "drafts_sent", "drafted", "accepted", "looked_up", "looked_up_accepted", "mispredicted"):
        setattr(stats, name, _whole(record, name))
    stats.next_draft_ready = _whole(record, "next_draft_ready")
    stats.bytes_sent, stats.bytes_received = _whole(record, "bytes_sent"), _whole(record, "bytes_received")
    stats.prediction_accepted, stats.prediction_rejected = more.prediction_accepted, more.prediction_rejected
    return stats


def headline(run: RunTrace, stats: Stats) -> str:
    """The mode of a run, its tokens, and when it began."""
    return f"{stats.mode}, {counted(stats.generated_tokens, 'token')}, {started(run)}"


def started(run: RunTrace) -> str:
    """When a run began."""
    return f"{run.metrics['started']}"[:19].replace("T", " ") + " UTC"


def timed(stats: Stats) -> bool:
    """Whether the trace shows a text's waiting times. In mode `auto`, the verifier's tokens have no times."""
    return {turn.mode for turn in stats.turns} <= {str(Mode.REMOTE)}


def modes(run: RunTrace) -> list[ModeSpan]:
    """The modes that wrote the text, in order; each lasts until its last token was known."""
    turns = _metrics(run).turns or [Turn(_text(run.metrics, "mode"), len(run.tokens))]
    found, begin, written = list[ModeSpan](), 0.0, 0
    for turn in turns:
        written += turn.tokens
        end = _time(run, written)
        found.append(ModeSpan(turn.mode, turn.tokens, begin, end))
        begin = end
    return found


def outages(run: RunTrace) -> list[Outage]:
    """The times without the verifier after which the text went on."""
    return [Outage(generated, _time(run, generated), _time(run, generated + 1)) for generated in _metrics(run).resumed]


def pass_widths(run: RunTrace) -> list[PassWidth]:
    """The target's passes over drafts, by their width."""
    by_width: dict[int, list[Record]] = {}
    for record in run.rounds:
        if record["ran"]:
            by_width.setdefault(1 + _whole(record, "judged"), []).append(record)
    found = []
    for positions, passes in sorted(by_width.items()):
        times = [_number(each, "forward_ms") for each in passes if each["forward_ms"] is not None]
        mean = sum(times) / len(times) if times else None
        found.append(PassWidth(positions, len(passes), sum(_whole(each, "accepted") for each in passes), mean))
    return found


def _time(run: RunTrace, tokens: int) -> float:
    """The time at which `tokens` tokens of the text were known; 0 for none."""
    return _number(run.tokens[min(tokens, len(run.tokens)) - 1], "committed_ms") if tokens and run.tokens else 0.0


def _metrics(run: RunTrace) -> _Metrics:
    try:
        return _Metrics.model_validate(_harmless(run.detail.metrics))
    except ValidationError as error:
        raise TraceError(f"run {run.metrics['run']}: metrics.{first_mistake(error)}: is it a trace?") from None


def _harmless(value: Any) -> Any:
    """Texts of models and servers, with control characters spelled out."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict):
        return {one_line(key): _harmless(each) for key, each in value.items()}
    return [_harmless(each) for each in value] if isinstance(value, list) else value


def _sources(run: RunTrace) -> Iterator[TokenSource]:
    for record in run.tokens:
        with suppress(ValueError):  # of another version, which has other sources
            yield TokenSource(record["source"])


def _spans(run: RunTrace) -> Iterator[Span]:
    """The activities of a run, in milliseconds since the run began.

    A pass of self-continuation is placed so that it ends when the drafter heard of it.
    """
    for each in run.detail.prefills:
        yield from exchange(PREFILL, each.sent_ms, each.arrived_ms, each.queue_ms, each.forward_ms)
    for record in run.rounds:
        if record["arrived_ms"] is not None:
            times = (_number(record, name) for name in ("sent_ms", "arrived_ms", "queue_ms", "forward_ms"))
            yield from exchange(VERIFY, *times)
    for step in run.detail.steps:
        yield DRAFTING, step.began_ms, step.ended_ms
    for alone in run.detail.self_continuation_passes:
        yield VERIFY, alone.arrived_ms - alone.forward_ms, alone.arrived_ms


def _text(record: Record, name: str) -> str:
    return one_line(str(record[name] or ""))


def _number(record: Record, name: str) -> float:
    return float(record[name] or 0.0)


def _whole(record: Record, name: str) -> int:
    return int(record[name] or 0)
