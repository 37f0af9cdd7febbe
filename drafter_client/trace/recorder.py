"""Record the events of one text in memory while the pair generates, and turn them into tables afterwards."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drafter_client.generation.observer import Committed
from drafter_client.metrics.token_source import SourceChange, TokenSource
from drafters.base import Expansion
from speculation.policy.schedule import Schedule
from speculation.policy.verifier_timeline import InFlightDraft
from speculation.protocol.responses import PrefillResponse, VerifyResponse

_DIGITS = 4  # decimals of milliseconds: clocks have no finer resolution


@dataclass(slots=True)
class _VerifyRequest:
    """A verify request and, once it came, its response. Times are milliseconds on the run's clock."""

    in_flight_draft: InFlightDraft
    schedule: Schedule
    draft_ms: float  # of the draft steps since the request before
    response: VerifyResponse | None = None
    arrived: float = 0.0
    new: int = 0  # tokens first known from its response


class Recorder:
    """An `Observer` of one text. In mode `auto` a text has several runs; one can begin before its predecessor ends.

    Times in the tables are milliseconds since the first run began.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began: float | None = None
        self._prefills: list[tuple[PrefillResponse, float, float]] = []
        self._steps: list[tuple[Expansion, float, float]] = []
        self._requests: list[_VerifyRequest] = []
        self._in_flight: dict[InFlightDraft, _VerifyRequest] = {}
        self._passes: list[tuple[float, float]] = []
        self._commits: list[tuple[int, Committed, float]] = []
        self._settled: dict[int, TokenSource] = {}
        self._draft_ms = 0.0  # milliseconds of draft steps since the last verify request

    def began(self, now: float) -> None:
        if self._began is None:
            self._began = now

    def opened(self, opened: PrefillResponse, asked: float, now: float) -> None:
        self._prefills.append((opened, asked, now))

    def drafted(self, expansion: Expansion, took: float, now: float) -> None:
        with self._lock:
            self._draft_ms += took
        self._steps.append((expansion, took, now))

    def sent(self, in_flight_draft: InFlightDraft, schedule: Schedule) -> None:
        with self._lock:
            request = self._in_flight[in_flight_draft] = _VerifyRequest(in_flight_draft, schedule, self._draft_ms)
            self._draft_ms = 0.0
        self._requests.append(request)

    def answered(self, in_flight_draft: InFlightDraft, response: VerifyResponse, new: int, now: float) -> None:
        request = self._in_flight.pop(in_flight_draft)
        request.response, request.new, request.arrived = response, new, now

    def target_decoded(self, forward_ms: float, now: float) -> None:
        self._passes.append((forward_ms, now))

    def committed(self, position: int, committed: Committed, now: float) -> None:
        self._commits.append((position, committed, now))

    def settled(self, changes: Sequence[SourceChange]) -> None:
        self._settled |= {change.position: change.source for change in changes}

    def rounds(self) -> list[dict[str, Any]]:
        """A record for each verify request: the columns of `rounds.csv` except `run`, and lists with the id and the
        confidence of each draft token, and whether it was looked up."""
        return [self._round(number, request) for number, request in enumerate(self._requests, 1)]

    def _round(self, number: int, request: _VerifyRequest) -> dict[str, Any]:
        in_flight_draft, response = request.in_flight_draft, request.response
        count = len(in_flight_draft.drafts)
        record: dict[str, Any] = {
            "round": number,
            "schedule": request.schedule.value,
            "position": in_flight_draft.position,
            "k": count,
            "confidence_mean": sum(in_flight_draft.confidence) / count if in_flight_draft.confidence else None,
            "confidence_min": min(in_flight_draft.confidence, default=None),
            "draft_ms": round(request.draft_ms, _DIGITS),
            "sent_ms": self._since_began(in_flight_draft.sent_at),
            "drafts": in_flight_draft.drafts,
            "confidence": list(in_flight_draft.confidence),
            "from_lookup": list(in_flight_draft.looked_up),
        }
        of_response = ("judged", "accepted", "ran", "looked_up", "rtt_ms", "network_ms", "queue_ms", "forward_ms")
        if response is None:
            return record | dict.fromkeys((*of_response, "arrived_ms", "committed"))
        rtt = request.arrived - in_flight_draft.sent_at
        return record | {
            "judged": response.judged,
            "accepted": response.judged_accepted(count),
            "ran": response.ran,
            "looked_up": sum(in_flight_draft.looked_up[(first := response.recorded(count)) : first + response.judged])
            if response.judged
            else 0,
            "rtt_ms": round(rtt, _DIGITS),
            "network_ms": round(max(0.0, rtt - response.queue_ms - response.forward_ms), _DIGITS),
            "queue_ms": response.queue_ms,
            "forward_ms": response.forward_ms,
            "arrived_ms": self._since_began(request.arrived),
            "committed": request.new,
        }

    def tokens(self) -> list[dict[str, Any]]:
        """A record for each committed token: the columns of `tokens.csv` except `run`."""
        return [
            {
                "position": at,
                "token": token,
                "source": source.value,
                "target_decoded": source is TokenSource.TARGET_DECODED,
                "committed_ms": self._since_began(now),
            }
            for position, committed, now in self._commits
            for at, (token, provisional) in enumerate(committed.tokens, position)
            for source in (self._settled.get(at, provisional),)
        ]

    def prefills(self) -> list[dict[str, float]]:
        """A record for each prefill: when it was sent and answered, and its milliseconds in queue and forward pass."""
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
        """A record for each draft step: begin, end, number of tokens read by the model, a draft token a branch."""
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

    def self_continuation_passes(self) -> list[dict[str, float]]:
        """A record for each verifier pass of self-continuation: its milliseconds, and when the drafter heard of it."""
        return [{"forward_ms": forward_ms, "arrived_ms": self._since_began(now)} for forward_ms, now in self._passes]

    def _since_began(self, at: float) -> float:
        return round(at - (self._began or 0.0), _DIGITS)
