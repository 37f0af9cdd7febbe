"""What a run came to: counted as it goes, reported as one flat object."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from drafter_client.http.responses import GenerateResponse, PrefillResponse, VerifyResponse
from drafter_client.metrics.pace import Pace
from drafter_client.metrics.token_source import SourceChange, TokenSource, first_sources
from drafter_client.metrics.waits import DRAFTING, NETWORK, PREFILL, QUEUE, VERIFY, Span, exchange, fitted, partition
from speculation.acceptance.decisions import Decision
from speculation.policy.schedule import Schedule
from speculation.policy.verifier_timeline import InFlightDraft


@dataclass(slots=True)
class WaitTimes:
    """Where the time went, milliseconds. `network` is what exchanges took beyond the verifier's own times.

    What happens side by side counts for each, so that the sum may exceed the whole: `Stats.waits` adds up to it.
    """

    prefill: float = 0.0
    drafting: float = 0.0
    network: float = 0.0
    queue: float = 0.0
    verify: float = 0.0


@dataclass(slots=True)
class Baseline:
    """The same prompt decoded by the target alone through the same server, in the same run."""

    tokens_per_second: float
    ttft_ms: float
    generated_tokens: int
    same_tokens: bool | None  # whether it is the very text; None: it is another sample, or none, by its strategy

    @classmethod
    def of(cls, alone: "Stats", expected: list[int] | None) -> "Baseline":
        """From a run of the target alone; `expected`: the text to compare it with."""
        rate = round(alone.tokens_per_second or 0.0, 2)
        same = None if expected is None else alone.token_ids == expected
        return cls(rate, round(alone.ttft_ms, 2), alone.generated_tokens, same)


class Turn(NamedTuple):
    """A stretch of a text that was written in one mode."""

    mode: str
    tokens: int


@dataclass(slots=True)
class Stats:
    """Counters of one run."""

    model: str = ""
    draft_model: str = ""
    mode: str = "remote"  # a `Mode`, or "solo": a model of this machine by itself
    prompt_tokens: int = 0
    token_ids: list[int] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)  # on each of these, where asked for
    rounds: int = 0  # guesses that the verifier ran its model for, each with a pass of its own
    drafts_sent: int = 0  # sent, those included that were out of date when they came
    drafted: int = 0
    accepted: int = 0
    looked_up: int = 0  # of those drafted, looked up in the text in place of asking a model
    looked_up_accepted: int = 0
    looks_up: bool = False  # whether all are
    sources: Counter[TokenSource] = field(default_factory=Counter)  # tokens of the text, by where they came from
    mispredicted: int = 0  # committed tokens that were not the drafter's choice
    next_draft_ready: int = 0  # of them, those behind which drafts were ready at once
    schedules: Counter[Schedule] = field(default_factory=Counter)  # tokens committed under each
    token_ms: list[float] = field(default_factory=list)  # from the token before; empty where two models write
    ttft_ms: float = 0.0
    total_ms: float = 0.0
    times: WaitTimes = field(default_factory=WaitTimes)
    began_ms: float = 0.0  # on the clock of `spans`
    spans: list[Span] = field(default_factory=list)  # of a text by two machines: who was at work when
    stretches: list[dict[str, float]] = field(default_factory=list)  # in mode auto: what each waited for
    bytes_sent: int = 0
    bytes_received: int = 0
    finish_reason: str | None = None
    context: int | None = None  # tokens that the context holds, where that is less than was asked for
    sampling: dict[str, Any] = field(default_factory=dict)
    baseline: Baseline | None = None
    turns: list[Turn] = field(default_factory=list)  # in mode auto: who wrote what
    why: str = ""  # and what the choice was made by
    resumed: list[int] = field(default_factory=list)  # tokens known when the text was taken up again
    failed: bool = False  # whether an error ended the text
    draft_failure: str | None = None  # why drafting ended before the text did: what the draft model's engine said

    def opened(self, opened: PrefillResponse, began_ms: float, now: float) -> None:
        """Count the prefill, from `began_ms` until `now`, milliseconds: the first of the text, or one that takes it up
        again."""
        self.prompt_tokens = len(opened.prompt_ids)
        if not self.spans:
            self.began_ms = began_ms - self.total_ms  # which earlier, vain tries may have taken
        if not self.token_ids:
            self.ttft_ms = self.total_ms + now - began_ms
        self.token_ids += opened.tokens
        self.decisions += opened.decisions or ()
        self.sources.update(first_sources(len(opened.tokens)))
        self.sampling = opened.sampling
        self.times.prefill += opened.forward_ms
        self.times.queue += opened.queue_ms
        self.times.network += max(0.0, now - began_ms - opened.forward_ms - opened.queue_ms)
        self.spans += exchange(PREFILL, began_ms, now, opened.queue_ms, opened.forward_ms)

    def drafted_for(self, milliseconds: float, now: float) -> None:
        """Count a draft step, which ended `now`."""
        self.times.drafting += milliseconds
        self.spans.append((DRAFTING, now - milliseconds, now))

    def target_decoded(self, milliseconds: float, now: float) -> None:
        """Count a pass that the verifier made by itself, which was told of `now`."""
        self.spans.append((VERIFY, now - milliseconds, now))

    def round(self, response: VerifyResponse, in_flight_draft: InFlightDraft, now: float) -> None:
        """Count the answer to a guess."""
        self.drafts_sent += 1
        self.rounds += response.ran
        if response.judged:
            first, stood = response.recorded(len(in_flight_draft.drafts)), response.stood(len(in_flight_draft.drafts))
            self.drafted += response.judged
            self.accepted += stood
            found = [True] * len(in_flight_draft.drafts) if self.looks_up else in_flight_draft.found
            self.looked_up += sum(found[first : first + response.judged])
            self.looked_up_accepted += sum(found[first : first + stood])
        self.times.queue += response.queue_ms
        self.times.verify += response.forward_ms
        self.times.network += max(0.0, now - in_flight_draft.sent_at - response.queue_ms - response.forward_ms)
        self.spans += exchange(VERIFY, in_flight_draft.sent_at, now, response.queue_ms, response.forward_ms)

    def served(self, summary: GenerateResponse) -> None:
        """Take over what the verifier says of a request for a text that it wrote by itself."""
        self.finish_reason, self.sampling = summary.finish_reason, summary.sampling
        self.times.queue += summary.queue_ms
        self.times.verify += summary.forward_ms
        speculation = summary.speculation
        if speculation is not None:
            self.draft_model = speculation.draft_model
            self.draft_failure = speculation.draft_failure or self.draft_failure
            self.looked_up += speculation.looked_up
            self.looked_up_accepted += speculation.looked_up_accepted
            self.times.drafting += speculation.drafting_ms

    def exchanged(self, milliseconds: float, summary: GenerateResponse | None) -> None:
        """Such a request is over, after so long: what the verifier does not account for is the way to it and back."""
        told = 0.0 if summary is None else summary.milliseconds
        self.times.network += max(0.0, milliseconds - told)

    def add(self, part: "Stats", tokens: int) -> None:
        """Count a stretch of the text, of which so many tokens are part of it; these and the whole time aside."""
        self.turns.append(Turn(part.mode, tokens))
        self.draft_model = self.draft_model or part.draft_model
        self.draft_failure = self.draft_failure or part.draft_failure
        self.sampling = part.sampling or self.sampling  # which the verifier has told
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(part, name))
        for each in fields(WaitTimes):
            setattr(self.times, each.name, getattr(self.times, each.name) + getattr(part.times, each.name))
        self.schedules += part.schedules
        self.stretches.append(part.waits())
        self.resumed += part.resumed

    def committed(
        self,
        tokens: list[tuple[int, TokenSource]],
        schedule: Schedule,
        decisions: Sequence[Decision] = (),
    ) -> None:
        """Count tokens that became known; `decisions` on them, where asked for."""
        self.token_ids += [token for token, _ in tokens]
        self.decisions += decisions
        self.sources.update(source for _, source in tokens)
        self.schedules[schedule] += len(tokens)

    def amend(self, changes: Iterable[SourceChange]) -> None:
        """Count tokens elsewhere than was thought when they became known."""
        for change in changes:
            self.sources[change.thought] -= 1
            self.sources[change.source] += 1

    def judged(self, judged: int, accepted: int, first: bool) -> None:
        """Count a pass over drafts that were made on the verifier's side; the `first` read the prompt."""
        self.rounds += not first
        self.drafts_sent += not first
        self.drafted += judged
        self.accepted += accepted

    def wrote(
        self, tokens: list[tuple[int, TokenSource]], milliseconds: float, decisions: Sequence[Decision] = ()
    ) -> None:
        """Count tokens of a model by itself, that came at once, so long after the one before or the beginning."""
        self.decisions += decisions
        if not self.token_ids:
            self.ttft_ms = milliseconds
        self.token_ids += [token for token, _ in tokens]
        self.token_ms += [milliseconds, *[0.0] * (len(tokens) - 1)]
        self.sources.update(source for _, source in tokens)

    @property
    def ended_by(self) -> str | None:
        """ "stop", "max_tokens" or "context"; None while the text goes on, and when it was interrupted or failed."""
        if self.finish_reason != "length":
            return self.finish_reason
        return "max_tokens" if self.context is None else "context"

    @property
    def generated_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens a round brings: 1 + accepted / rounds."""
        return 1 + self.accepted / self.rounds if self.rounds else None

    @property
    def tokens_per_second(self) -> float | None:
        """Over the whole run, prefill included."""
        return 1e3 * self.generated_tokens / self.total_ms if self.total_ms > 0 else None

    @property
    def speed_up(self) -> float | None:
        """Against the measured baseline; None when none was run."""
        rate = self.tokens_per_second
        if self.baseline is None or rate is None or self.baseline.tokens_per_second <= 0:
            return None
        return rate / self.baseline.tokens_per_second

    def waits(self) -> dict[str, float]:
        """What the text waited for, milliseconds that add up to `total_ms`: see `drafter_client.metrics.waits`."""
        if self.stretches:
            return fitted(
                {part: sum(each[part] for each in self.stretches) for part in self.stretches[0]}, self.total_ms
            )
        if self.spans:
            return partition(self.spans, self.began_ms, self.began_ms + self.total_ms)
        times = self.times
        measured = {PREFILL: times.prefill, VERIFY: times.verify, QUEUE: times.queue, NETWORK: times.network}
        measured[DRAFTING] = times.drafting
        if self.mode in ("target", "fused") and self.finish_reason is None:
            # What the verifier says of a text that it writes comes with its end; this one was left before.
            measured[VERIFY] += max(0.0, self.total_ms - sum(measured.values()))
        return fitted(measured, self.total_ms)

    def report(self, text: str) -> dict[str, Any]:
        """The object that `--json` prints; docs/readout.md says what is what."""
        return {"text": text, **self.figures()}

    def figures(self) -> dict[str, Any]:
        """All that was counted, rounded for printing. None: not known."""
        pace = Pace.of(self.token_ms)
        return {
            "token_ids": self.token_ids,
            "model": self.model,
            "draft_model": self.draft_model,
            "mode": self.mode,
            "prompt_tokens": self.prompt_tokens,
            "generated_tokens": self.generated_tokens,
            "rounds": self.rounds,
            "drafts_sent": self.drafts_sent,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "acceptance_rate": _rounded(self.acceptance_rate, 4),
            "mean_acceptance_length": _rounded(self.mean_acceptance_length, 3),
            "looked_up": self.looked_up,
            "looked_up_accepted": self.looked_up_accepted,
            "target_decoded_tokens": self.sources[TokenSource.TARGET_DECODED],
            "token_sources": {source.value: self.sources[source] for source in TokenSource},
            "mispredicted": self.mispredicted,
            "next_draft_ready": self.next_draft_ready,
            "schedules": {schedule.value: count for schedule, count in self.schedules.items()},
            "tokens_per_second": _rounded(self.tokens_per_second, 2),
            "ttft_ms": round(self.ttft_ms, 2),
            "total_ms": round(self.total_ms, 2),
            "itl_ms": _all_rounded(asdict(pace)) if pace is not None else None,
            "token_ms": [round(each, 2) for each in self.token_ms] or None,
            "times_ms": _all_rounded(asdict(self.times)),
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "finish_reason": self.finish_reason,
            "ended_by": self.ended_by,
            "sampling": self.sampling,
            "baseline": asdict(self.baseline) if self.baseline is not None else None,
            "speed_up": _rounded(self.speed_up, 3),
            "turns": [turn._asdict() for turn in self.turns],
            "why": self.why,
            "resumed": self.resumed,
            "draft_failure": self.draft_failure,
            "decisions": [each.body() for each in self.decisions] or None,
        }


# What adds up over the stretches of a text.
_COUNTED = (
    *(
        "rounds",
        "drafts_sent",
        "drafted",
        "accepted",
        "looked_up",
        "looked_up_accepted",
        "mispredicted",
        "next_draft_ready",
    ),
    *("bytes_sent", "bytes_received"),
)


def _all_rounded(times: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in times.items()}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
