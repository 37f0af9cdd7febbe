"""What a run came to: counted as it goes, reported as one flat object."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from drafter_client.replies import Opened, Verdict
from speculation.decisions import Decision
from speculation.forecast import Flight
from speculation.operation import Operation


@dataclass(slots=True)
class Times:
    """Where the time went, milliseconds. `network` is what exchanges took beyond the verifier's own times.

    What happens side by side counts for each, so that the sum may exceed the whole.
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
    same_tokens: bool  # whether it is the very text; a near-tie in floating point can make it differ


@dataclass(slots=True)
class Stats:
    """Counters of one run."""

    model: str = ""
    draft_model: str = ""
    prompt_tokens: int = 0
    token_ids: list[int] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)  # on each of these, where asked for
    rounds: int = 0  # guesses that the verifier ran its model for
    guesses: int = 0  # sent, those included that were out of date when they came
    drafted: int = 0
    accepted: int = 0
    looked_up: int = 0  # of those drafted, looked up in the text in place of asking the model
    looked_up_accepted: int = 0
    own: int = 0  # tokens that the verifier committed by itself, no guess being there
    misses: int = 0  # committed tokens that were not the drafter's choice
    prepared: int = 0  # of them, those behind which drafts were ready at once
    operations: Counter[Operation] = field(default_factory=Counter)  # tokens committed under each
    ttft_ms: float = 0.0
    total_ms: float = 0.0
    times: Times = field(default_factory=Times)
    bytes_sent: int = 0
    bytes_received: int = 0
    finish_reason: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    baseline: Baseline | None = None

    def opened(self, opened: Opened, seconds: float) -> None:
        """Count the prefill, which took `seconds`."""
        self.prompt_tokens = len(opened.prompt_ids)
        self.token_ids = list(opened.tokens)
        self.decisions = list(opened.decisions or ())
        self.sampling = opened.sampling
        self.ttft_ms = 1e3 * seconds
        self.times.prefill = opened.forward_ms
        self.times.queue += opened.queue_ms
        self.times.network += max(0.0, 1e3 * seconds - opened.forward_ms - opened.queue_ms)

    def drafted_for(self, milliseconds: float) -> None:
        """Count a draft step."""
        self.times.drafting += milliseconds

    def round(self, verdict: Verdict, flight: Flight, now: float) -> None:
        """Count the answer to a guess."""
        self.guesses += 1
        if verdict.forward_ms > 0.0 and (verdict.judged or not flight.drafts):
            self.rounds += 1
        if verdict.judged:
            first = len(flight.drafts) - verdict.judged
            self.drafted += verdict.judged
            self.accepted += max(0, verdict.accepted - first)
            self.looked_up += sum(flight.found[first:])
            self.looked_up_accepted += sum(flight.found[first : verdict.accepted])
        self.times.queue += verdict.queue_ms
        self.times.verify += verdict.forward_ms
        self.times.network += max(0.0, now - flight.sent_at - verdict.queue_ms - verdict.forward_ms)

    def committed(self, tokens: list[int], own: bool, operation: Operation, decisions: Sequence[Decision] = ()) -> None:
        """Count tokens that became known; `decisions` on them, where asked for."""
        self.token_ids += tokens
        self.decisions += decisions
        self.own += len(tokens) if own else 0
        self.operations[operation] += len(tokens)

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

    def report(self, text: str) -> dict[str, Any]:
        """The object that `--json` prints."""
        return {
            "text": text,
            "token_ids": self.token_ids,
            "model": self.model,
            "draft_model": self.draft_model,
            "prompt_tokens": self.prompt_tokens,
            "generated_tokens": self.generated_tokens,
            "rounds": self.rounds,
            "guesses": self.guesses,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "acceptance_rate": _rounded(self.acceptance_rate, 4),
            "mean_acceptance_length": _rounded(self.mean_acceptance_length, 3),
            "looked_up": self.looked_up,
            "looked_up_accepted": self.looked_up_accepted,
            "own_tokens": self.own,
            "misses": self.misses,
            "prepared": self.prepared,
            "operations": {operation.value: count for operation, count in self.operations.items()},
            "tokens_per_second": _rounded(self.tokens_per_second, 2),
            "ttft_ms": round(self.ttft_ms, 2),
            "total_ms": round(self.total_ms, 2),
            "times_ms": {name: round(value, 2) for name, value in asdict(self.times).items()},
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "finish_reason": self.finish_reason,
            "sampling": self.sampling,
            "baseline": asdict(self.baseline) if self.baseline is not None else None,
            "speed_up": _rounded(self.speed_up, 3),
        }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
