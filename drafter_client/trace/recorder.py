"""Record the events of one text in memory while the pair generates, and turn them into tables afterwards."""

from dataclasses import dataclass
from typing import Any

from drafter_client.generation.events import (
    Answered,
    Began,
    Committed,
    Drafted,
    Event,
    Opened,
    Sent,
    SourcesChanged,
    Streamed,
)
from drafter_client.http.responses import PrefillResponse, VerifyResponse
from drafter_client.metrics.token_source import TokenSource
from drafters.base import Expansion
from speculation.policy.schedule import Schedule
from speculation.policy.verifier_timeline import InFlightDraft

_DIGITS = 4  # decimals of milliseconds: clocks have no finer resolution


@dataclass(slots=True)
class _VerifyRequest:
    """A verify request and, once it came, its response. Times are milliseconds on the run's clock."""

    schedule: Schedule
    draft_ms: float  # of the draft steps since the request before
    response: VerifyResponse | None = None
    arrived: float = 0.0
    new: int = 0  # tokens first known from its response


class Recorder:
    """Records one text. In mode `auto` a text has several runs. Times in the tables are milliseconds since the first
    one began."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._known = 0  # length of the committed text in tokens, prompt included
        self._prefills: list[tuple[PrefillResponse, float, float]] = []
        self._steps: list[tuple[Expansion, float, float]] = []
        self._requests: dict[InFlightDraft, _VerifyRequest] = {}  # in the order in which they were sent
        self._passes: list[tuple[float, float]] = []
        self._commits: list[tuple[Committed, float]] = []
        self._settled: dict[int, TokenSource] = {}
        self._draft_ms = 0.0  # milliseconds of draft steps since the last verify request

    def take(self, event: Event, now: float) -> None:
        """Record an event, as a `Listener`."""
        match event:
            case Began():
                self._began = now if self._began is None else self._began
            case Opened(response, asked):
                self._prefills.append((response, asked, now))
            case Drafted(expansion):
                self._draft_ms += event.took
                self._steps.append((expansion, event.took, now))
            case Sent(in_flight_draft, schedule):
                self._requests[in_flight_draft] = _VerifyRequest(schedule, self._draft_ms)
                self._draft_ms = 0.0
            case Answered(in_flight_draft, answer):
                request = self._requests[in_flight_draft]
                request.response, request.arrived = answer, now
                request.new = max(0, in_flight_draft.position + len(answer.tokens) - self._known)
            case Streamed():
                if event.forward_ms is not None:
                    self._passes.append((event.forward_ms, now))
            case Committed(position, tokens):
                self._known = position + len(tokens)
                self._commits.append((event, now))
            case SourcesChanged(changes):
                self._settled |= {change.position: change.source for change in changes}

    def rounds(self) -> list[dict[str, Any]]:
        """A record for each verify request: the columns of `rounds.csv` except `run`, and lists with the id and the
        confidence of each draft token, and whether it was looked up."""
        return [self._round(number, *each) for number, each in enumerate(self._requests.items(), 1)]

    def _round(self, number: int, in_flight_draft: InFlightDraft, request: _VerifyRequest) -> dict[str, Any]:
        count, response = len(in_flight_draft.drafts), request.response
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
            for committed, now in self._commits
            for at, (token, provisional) in enumerate(committed.tokens, committed.position)
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
