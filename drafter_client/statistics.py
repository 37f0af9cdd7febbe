"""The statistics of a run, with derived values, reported as one flat object."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from specpair.corpus.draft_corpus import CorpusState
from specpair.numbers import quantile
from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.response_fields import STOP_STRING
from specpair.speculation.acceptance.judge import Decision
from specpair.speculation.acceptance.round_counts import RoundCounts
from specpair.speculation.acceptance.token_sources import TokenDetails, TokenSource
from specpair.speculation.drafting.composed_context import ContextRead
from specpair.speculation.policy.schedule import Schedule
from specpair.speculation.sampling.distribution import TokenLogprobs

_STEPS = 512
SOLO = "solo"  # `Stats.mode` of one local model without a verifier
PREFILL, VERIFY, QUEUE, NETWORK, DRAFTING, OTHER = "prefill", "verify", "queue", "network", "drafting", "other"
OUTAGE = "outage"  # of OTHER, what was spent waiting for a verifier that was away
PARTS = (PREFILL, VERIFY, QUEUE, NETWORK, DRAFTING)

Span = tuple[str, float, float]  # one of PARTS, its begin and its end, seconds
_METRICS = (  # the keys of `Stats.metrics`, in their order
    "token_ids model draft_model mode prompt_tokens cached_tokens generated_tokens rounds drafts_sent drafted "
    "accepted acceptance_rate mean_acceptance_length looked_up looked_up_accepted by_head by_head_accepted "
    "draft_context corpus prediction_tokens prediction_accepted prediction_rejected from_grammar "
    "target_decoded_tokens token_sources mispredicted next_draft_ready schedules tokens_per_second ttft_ms total_ms "
    "outages outage_ms itl_ms token_ms times_ms bytes_sent bytes_received finish_reason ended_by sampling baseline "
    "speed_up turns why resumed verifiers draft_failure decisions logprobs"
)


def itl(token_times: Sequence[float]) -> dict[str, float] | None:
    """Median, 90th percentile and longest of the inter-token latencies of a text, in seconds; None if it has fewer than
    two tokens. `token_times`: of each token since the one before; the first one's is no ITL, and ignored."""
    latencies = token_times[1:]
    if not latencies:
        return None
    return {"median": quantile(latencies, 0.5), "p90": quantile(latencies, 0.9), "longest": max(latencies)}


@dataclass(slots=True)
class WaitTimes:
    """Seconds of each activity in a run.

    Activities that overlap count in full, so their sum may exceed the total time. The parts of `Stats.waits` add up to
    the total time.
    """

    prefill: float = 0.0  # passes over the prompt, where they are timed apart
    drafting: float = 0.0  # draft steps, on this machine or on the verifier
    network: float = 0.0  # requests, without the verifier's queue and passes
    queue: float = 0.0  # in the verifier's queue
    verify: float = 0.0  # all other verifier passes


@dataclass(slots=True)
class Baseline:
    """Metrics of the target alone on the same prompt, on the same server and in the same run of the program."""

    tokens_per_second: float | None  # None: an outage interrupted the text, so its time says nothing
    ttft_ms: float
    generated_tokens: int
    same_tokens: bool | None  # whether the texts are equal; None: under this strategy they need not be

    @classmethod
    def of(cls, alone: "Stats", expected: list[int] | None) -> "Baseline":
        """The metrics of `alone`, a run of the target alone. `expected`: token ids to compare with its text, if any."""
        rate = None if alone.resumed else round(alone.tokens_per_second or 0.0, 2)
        same = None if expected is None else alone.token_ids == expected
        return cls(rate, round(alone.ttft_ms, 2), alone.generated_tokens, same)


class Turn(NamedTuple):
    """A stretch of a text in mode `auto`: the mode that generated it, and its number of tokens."""

    mode: str
    tokens: int


@dataclass(slots=True)
class Stats(RoundCounts):
    """Counters and times of one run. `StatsCounter` fills them, and no decision depends on them.

    `token_ids` is a list of its own, not that of `TextSession`: statistics report what events said, and outlive the
    text.
    """

    model: str = ""
    draft_model: str = ""
    mode: str = "remote"  # a `Mode`, or SOLO
    verifiers: list[str] = field(default_factory=list)  # of several, those that wrote the text, one after the other
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, those that the verifier had in its KV cache from another text
    prompt_progress: PromptProgress | None = None  # of a long prompt, while it is being read
    token_ids: list[int] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)  # one for each token, if requested by `explain`
    logprobs: list[TokenLogprobs] = field(default_factory=list)  # one for each token, if requested by `logprobs`
    drafts_sent: int = 0  # verify requests sent, including drafts that were out of date on arrival
    prediction_tokens: int | None = None  # tokens of the client's prediction of the text; None: there is none
    draft_context: ContextRead | None = None  # what the draft model had read; None: no draft model drafted here
    corpus: CorpusState | None = None  # the user's files that draft tokens were looked up in; None: there are none
    looks_up: bool = False  # whether all draft tokens are looked up in the text
    token_sources: list[TokenSource] = field(default_factory=list)  # one for each token
    mispredicted: int = 0  # committed tokens that the drafter had not predicted
    next_draft_ready: int = 0  # of the mispredicted tokens, those after which the next draft was ready at once
    schedules: Counter[Schedule] = field(default_factory=Counter)  # committed tokens by schedule
    # Seconds of each token since the one before; empty in modes remote, auto.
    token_times: list[float] = field(default_factory=list)
    ttft: float = 0.0  # seconds to the first token, without those of `outage_time` before it
    total_time: float = 0.0  # seconds
    outages: int = 0  # how often the text waited for a verifier that was away; `outage_time`: how long
    # Seconds of the last draft steps on this machine, enough for a median.
    draft_steps: deque[float] = field(default_factory=lambda: deque(maxlen=_STEPS))
    times: WaitTimes = field(default_factory=WaitTimes)
    began: float = 0.0  # begin of the run, on the clock of `spans`
    spans: list[Span] = field(default_factory=list)  # in mode remote: activities over time
    stretches: list[dict[str, float]] = field(default_factory=list)  # in mode auto: `waits` of each stretch
    bytes_sent: int = 0
    bytes_received: int = 0
    finish_reason: str | None = None
    stopped: bool = False  # whether a stop string ended the text
    context: int | None = None  # context length in tokens, if it is too short for prompt and max_tokens
    sampling: dict[str, Any] = field(default_factory=dict)
    baseline: Baseline | None = None
    turns: list[Turn] = field(default_factory=list)  # in mode auto: the mode of each stretch
    why: str = ""  # in mode auto: what the mode selection is based on
    resumed: list[int] = field(default_factory=list)  # for each resumption after an outage: tokens generated by then
    failed: bool = False  # whether an error ended the text
    draft_failure: str | None = None  # why drafting ended before the text did: the draft engine's error

    def add(self, tokens: Sequence[tuple[int, TokenSource]], details: TokenDetails | None) -> None:
        """Add committed tokens, each with its source, and their details; None: there are none."""
        self.token_ids += [token for token, _ in tokens]
        self.token_sources += [source for _, source in tokens]
        if details is not None:
            self.decisions += filter(None, details.decisions or ())
            self.logprobs += filter(None, details.logprobs or ())

    def cut(self, tokens: int) -> None:
        """Note that a stop string ended the text after `tokens` tokens, and forget those that came behind it."""
        self.finish_reason, self.stopped = "stop", True
        for each in (self.token_ids, self.token_sources, self.token_times, self.decisions, self.logprobs):
            del each[tokens:]

    @property
    def sources(self) -> Counter[TokenSource]:
        """The tokens of the text by source."""
        return Counter(self.token_sources)

    @property
    def ended_by(self) -> str | None:
        """ "stop", "stop_string", "max_tokens" or "context"; None while the text is generated, or if it was interrupted
        or failed."""
        if self.stopped:
            return STOP_STRING
        if self.finish_reason != "length":
            return self.finish_reason
        return "max_tokens" if self.context is None else "context"

    @property
    def generated_tokens(self) -> int:
        """Tokens of the text so far, without the prompt."""
        return len(self.token_ids)

    @property
    def tokens_per_second(self) -> float | None:
        """Generated tokens divided by `working_time`, prefill included; None before a time was measured."""
        return self.generated_tokens / self.working_time if self.working_time > 0 else None

    @property
    def working_time(self) -> float:
        """Seconds of the whole run, but for the outages."""
        return self.total_time - self.outage_time

    @property
    def ttft_ms(self) -> float:
        """Milliseconds to the first token."""
        return 1e3 * self.ttft

    @property
    def total_ms(self) -> float:
        """Milliseconds of the whole run."""
        return 1e3 * self.total_time

    @property
    def token_ms(self) -> list[float]:
        """For each token the milliseconds since the one before; empty in modes remote, auto."""
        return [1e3 * each for each in self.token_times]

    @property
    def draft_token_ms(self) -> float | None:
        """Milliseconds of a draft step, the median; None if nothing was drafted on this machine."""
        return 1e3 * quantile(self.draft_steps, 0.5) if self.draft_steps else None

    @property
    def undrafted(self) -> bool:
        """Whether the target wrote the text alone: no draft token was judged, and no grammar forced one."""
        return not self.drafted and TokenSource.FORCED not in self.token_sources

    @property
    def speed_up(self) -> float | None:
        """`tokens_per_second` divided by the baseline's; None without a baseline, or after an outage in either."""
        rate = self.tokens_per_second
        if self.baseline is None or rate is None or not self.baseline.tokens_per_second or self.resumed:
            return None
        return rate / self.baseline.tokens_per_second

    def waits(self) -> dict[str, float]:
        """Seconds that the text waited for each part (see `partition`). They add up to `total_time`."""
        if self.stretches:
            return fitted(
                {part: sum(each[part] for each in self.stretches) for part in self.stretches[0]}, self.total_time
            )
        if self.spans:
            parts = partition(self.spans, self.began, self.began + self.total_time)
        else:
            measured = {part: getattr(self.times, part) for part in PARTS}
            if self.mode in ("target", "fused") and self.finish_reason is None:
                # The verifier reports its times at the end of a text. This one was left before its end.
                measured[VERIFY] += max(0.0, self.working_time - sum(measured.values()))
            parts = fitted(measured, self.total_time)
        away = min(self.outage_time, parts[OTHER])
        return parts | {OTHER: parts[OTHER] - away, OUTAGE: away}

    def report(self, text: str) -> dict[str, Any]:
        """The object that `--json` prints; docs/readout.md explains its keys."""
        return {"text": text, **self.metrics()}

    def metrics(self) -> dict[str, Any]:
        """All statistics, rounded for printing; None for a value that is not known."""
        sources, pace = self.sources, itl(self.token_times)
        derived = {
            "acceptance_rate": _rounded(self.acceptance_rate, 4),
            "mean_acceptance_length": _rounded(self.mean_acceptance_length, 3),
            "draft_context": None if self.draft_context is None else self.draft_context._asdict(),
            "corpus": None if self.corpus is None else asdict(self.corpus),
            "from_grammar": self.from_grammar + sources[TokenSource.FORCED],
            "target_decoded_tokens": sources[TokenSource.TARGET_DECODED],
            "token_sources": {source.value: sources[source] for source in TokenSource},
            "schedules": {schedule.value: count for schedule, count in self.schedules.items()},
            "tokens_per_second": _rounded(self.tokens_per_second, 2),
            "ttft_ms": _rounded(self.ttft_ms if self.token_ids else None, 2),
            "total_ms": round(self.total_ms, 2),
            "outage_ms": round(1e3 * self.outage_time, 2),
            "itl_ms": pace and _all_ms(pace),
            "token_ms": [round(each, 2) for each in self.token_ms] or None,
            "times_ms": _all_ms(asdict(self.times)),
            "baseline": asdict(self.baseline) if self.baseline is not None else None,
            "speed_up": _rounded(self.speed_up, 3),
            "turns": [turn._asdict() for turn in self.turns],
            "verifiers": self.verifiers or None,
            "decisions": [each.body() for each in self.decisions] or None,
            "logprobs": [each.body() for each in self.logprobs] or None,
        }
        return {name: derived[name] if name in derived else getattr(self, name) for name in _METRICS.split()}


def exchange(part: str, sent: float, came: float, queue: float, forward: float) -> list[Span]:
    """Split the time of a request: the network there, the verifier's queue, its pass (`part`), the network back.

    `sent` and `came`: seconds of the drafter's clock. Both ways are assumed to take the same time. The verifier
    measures `queue` and `forward` itself; they are cut to the time of the whole request, the queue first.
    """
    way = max(0.0, came - sent - queue - forward) / 2
    back = came - way
    begun = max(sent, back - forward)
    queued = max(sent, begun - queue)
    return [(NETWORK, sent, came), (QUEUE, queued, begun), (part, begun, back)]


def partition(spans: Iterable[Span], begin: float, end: float) -> dict[str, float]:
    """How many of the seconds from `begin` to `end` a text waited for each of PARTS, and for OTHER. No value is
    negative, and their sum is `end - begin`.

    Drafting, the network and the verifier work concurrently, and several drafts may be in flight. Here each moment
    counts once: for the first of `PARTS` that was under way, or for `OTHER` if none was.
    """
    changes: list[tuple[float, str, int]] = []
    for part, first, last in spans:
        first, last = max(first, begin), min(last, end)
        if first < last:
            changes += [(first, part, 1), (last, part, -1)]
    times = dict.fromkeys((*PARTS, OTHER), 0.0)
    under_way = dict.fromkeys(PARTS, 0)
    before = begin
    for now, part, step in sorted(changes):
        times[next((each for each, count in under_way.items() if count), OTHER)] += now - before
        under_way[part] += step
        before = now
    times[OTHER] += max(0.0, end - before)
    return times


def fitted(times: Mapping[str, float], total: float) -> dict[str, float]:
    """A partition of `total` seconds by `times`, those of activities that did not overlap.

    What `times` leaves of the total is OTHER. If their sum exceeds the total, as with times of two clocks, all parts
    are scaled down.
    """
    measured = sum(times.values())
    scale = min(1.0, total / measured) if measured > 0 else 1.0
    parts = {part: scale * value for part, value in times.items()}
    return parts | {OTHER: parts.get(OTHER, 0.0) + max(0.0, total - scale * measured)}


def _all_ms(times: dict[str, float]) -> dict[str, float]:
    return {name: round(1e3 * value, 2) for name, value in times.items()}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
