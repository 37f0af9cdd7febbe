"""What happened in one run, kept in memory: appending while the pair is at work, tables when it is over."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drafter_client.generation.observer import Committed
from drafter_client.http.responses import PrefillResponse, VerifyResponse
from drafter_client.metrics.token_source import SourceChange, TokenSource
from drafters.base import Expansion
from speculation.policy.schedule import Schedule
from speculation.policy.verifier_timeline import InFlightDraft

_DIGITS = 4  # of milliseconds: clocks are no finer


@dataclass(slots=True)
class _Guess:
    flight: InFlightDraft
    operation: Schedule
    draft_ms: float
    verdict: VerifyResponse | None = None
    arrived: float = 0.0
    brought: int = 0


class Recorder:
    """An `Observer`, of one text: in mode `auto` of several runs, of which one may begin before the last has ended.

    Times in its tables are milliseconds since the first run began.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began: float | None = None
        self._prefills: list[tuple[PrefillResponse, float, float]] = []
        self._steps: list[tuple[Expansion, float, float]] = []
        self._guesses: list[_Guess] = []
        self._under_way: dict[InFlightDraft, _Guess] = {}
        self._passes: list[tuple[float, float]] = []
        self._commits: list[tuple[int, Committed, float]] = []
        self._settled: dict[int, TokenSource] = {}
        self._draft_ms = 0.0  # since the last guess left

    def began(self, now: float) -> None:
        if self._began is None:
            self._began = now

    def opened(self, opened: PrefillResponse, asked: float, now: float) -> None:
        self._prefills.append((opened, asked, now))

    def drafted(self, expansion: Expansion, took: float, now: float) -> None:
        with self._lock:
            self._draft_ms += took
        self._steps.append((expansion, took, now))

    def sent(self, flight: InFlightDraft, operation: Schedule) -> None:
        with self._lock:
            guess = self._under_way[flight] = _Guess(flight, operation, self._draft_ms)
            self._draft_ms = 0.0
        self._guesses.append(guess)

    def answered(self, flight: InFlightDraft, verdict: VerifyResponse, brought: int, now: float) -> None:
        guess = self._under_way.pop(flight)
        guess.verdict, guess.brought, guess.arrived = verdict, brought, now

    def went_on(self, forward_ms: float, now: float) -> None:
        self._passes.append((forward_ms, now))

    def committed(self, position: int, committed: Committed, now: float) -> None:
        self._commits.append((position, committed, now))

    def settled(self, changes: Sequence[SourceChange]) -> None:
        self._settled |= {change.position: change.origin for change in changes}

    def rounds(self) -> list[dict[str, Any]]:
        """Columns of `rounds.csv` but for the run, and of each draft its token, confidence and whether looked up."""
        return [self._round(number, guess) for number, guess in enumerate(self._guesses, 1)]

    def _round(self, number: int, guess: _Guess) -> dict[str, Any]:
        flight, verdict = guess.flight, guess.verdict
        count = len(flight.drafts)
        row: dict[str, Any] = {
            "round": number,
            "operation": guess.operation.value,
            "position": flight.position,
            "k": count,
            "confidence_mean": sum(flight.confidence) / count if flight.confidence else None,
            "confidence_min": min(flight.confidence, default=None),
            "draft_ms": round(guess.draft_ms, _DIGITS),
            "sent_ms": self._since_began(flight.sent_at),
            "drafts": flight.drafts,
            "confidence": list(flight.confidence),
            "found": list(flight.found),
        }
        answer = ("judged", "accepted", "ran", "looked_up", "rtt_ms", "network_ms", "queue_ms", "forward_ms")
        if verdict is None:
            return row | dict.fromkeys((*answer, "arrived_ms", "committed"))
        rtt = guess.arrived - flight.sent_at
        return row | {
            "judged": verdict.judged,
            "accepted": verdict.stood(count),
            "ran": verdict.ran,
            "looked_up": sum(flight.found[(first := verdict.recorded(count)) : first + verdict.judged])
            if verdict.judged
            else 0,
            "rtt_ms": round(rtt, _DIGITS),
            "network_ms": round(max(0.0, rtt - verdict.queue_ms - verdict.forward_ms), _DIGITS),
            "queue_ms": verdict.queue_ms,
            "forward_ms": verdict.forward_ms,
            "arrived_ms": self._since_began(guess.arrived),
            "committed": guess.brought,
        }

    def tokens(self) -> list[dict[str, Any]]:
        """Columns of `tokens.csv` but for the run."""
        return [
            {
                "position": at,
                "token": token,
                "origin": origin.value,
                "own": origin is TokenSource.OWN,
                "committed_ms": self._since_began(now),
            }
            for position, committed, now in self._commits
            for at, (token, thought) in enumerate(committed.tokens, position)
            for origin in (self._settled.get(at, thought),)
        ]

    def prefills(self) -> list[dict[str, float]]:
        """When a prompt was sent and answered, and what of that was queue and forward pass."""
        return [
            {
                "sent_ms": self._since_began(asked),
                "queue_ms": opened.queue_ms,
                "forward_ms": opened.forward_ms,
                "arrived_ms": self._since_began(now),
            }
            for opened, asked, now in self._prefills
        ]

    def steps(self) -> list[dict[str, Any]]:
        """Draft steps: when they began and ended, what the model read, and the tokens found, one for each branch."""
        return [
            {
                "began_ms": self._since_began(now - took),
                "ended_ms": self._since_began(now),
                "read": expansion.read,
                "width": len(expansion.predictions),
                "drafts": [prediction.token for prediction in expansion.predictions],
            }
            for expansion, took, now in self._steps
        ]

    def own_passes(self) -> list[dict[str, float]]:
        """Passes that the verifier took by itself, as of when it told of them."""
        return [{"forward_ms": forward_ms, "arrived_ms": self._since_began(now)} for forward_ms, now in self._passes]

    def _since_began(self, at: float) -> float:
        return round(at - (self._began or 0.0), _DIGITS)
