"""Record the events of one text in memory while the pair generates, and turn them into tables afterwards."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from drafter_client.generation import events
from gateway.openai_api.detokenizer import Detokenizer
from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.acceptance.round_counts import JudgedDraft, JudgedRound, judged_drafts
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.policy.verifier_timeline import InFlightDraft

_DIGITS = 4  # decimals of milliseconds: clocks have no finer resolution
_OF_RESPONSE = ("judged", "accepted", "ran", "looked_up", "rtt_ms", "network_ms", "queue_ms", "forward_ms")
_UNANSWERED: dict[str, Any] = dict.fromkeys((*_OF_RESPONSE, "arrived_ms", "committed"))

_NOT_RUN: dict[str, Any] = {"judged": 0, "accepted": 0, "ran": False, "looked_up": 0}

E = TypeVar("E", bound=events.RunEvent)


class Recorder:
    """Records one text. In mode `auto` a text has several runs. Times in the tables are milliseconds since the first
    one began."""

    def __init__(self) -> None:
        self._events: list[tuple[events.RunEvent, float]] = []

    def take(self, event: events.RunEvent, now: float) -> None:
        self._events.append((event, now))

    def _all(self, kind: type[E]) -> Iterator[tuple[E, float]]:
        return ((event, now) for event, now in self._events if isinstance(event, kind))

    def rounds(self) -> list[dict[str, Any]]:
        """A record for each verify request: the columns of `rounds.csv` except `run`, and lists with the id and the
        confidence of each draft token, and whether it was looked up."""
        records: dict[InFlightDraft, dict[str, Any]] = {}
        drafting, known = 0.0, 0  # seconds of draft steps since the last request; tokens of the committed text
        for event, now in self._events:
            match event:
                case events.Drafted():
                    drafting += event.took
                case events.Sent(in_flight_draft):
                    records[in_flight_draft] = self._request(len(records) + 1, event, drafting) | _UNANSWERED
                    drafting = 0.0
                case events.Answered(in_flight_draft):
                    if records[in_flight_draft]["ran"] is None:  # else its tokens have come by the event stream
                        records[in_flight_draft] |= _NOT_RUN
                    records[in_flight_draft] |= self._response(event, now, known)
                case events.Committed(position, tokens):
                    known = position + len(tokens)
                    for each in event.rounds:
                        if isinstance(each.request, InFlightDraft):
                            records[each.request] |= _judged(each)
        return list(records.values())

    def _request(self, number: int, sent: events.Sent, drafting: float) -> dict[str, Any]:
        draft = sent.in_flight_draft.draft
        confidence = [each.confidence for each in draft]
        return {
            "round": number,
            "schedule": sent.schedule.value,
            "position": draft.position,
            "k": len(draft),
            "confidence_mean": sum(confidence) / len(draft) if confidence else None,
            "confidence_min": min(confidence, default=None),
            "draft_ms": _ms(drafting),
            "sent_ms": self._since_began(sent.in_flight_draft.sent_at),
            "drafts": draft.ids,
            "confidence": confidence,
            "from_lookup": [each.source.looked_up for each in draft],
        }

    def _response(self, answered: events.Answered, now: float, known: int) -> dict[str, Any]:
        sent, response = answered.in_flight_draft, answered.response
        rtt = now - sent.sent_at
        return {
            "rtt_ms": _ms(rtt),
            "network_ms": _ms(max(0.0, rtt - response.queue - response.forward)),
            "queue_ms": _ms(response.queue),
            "forward_ms": _ms(response.forward),
            "arrived_ms": self._since_began(now),
            "committed": max(0, sent.draft.position + len(response.tokens) - known),
        }

    def tokens(self) -> list[dict[str, Any]]:
        """A record for each committed token: the columns of `tokens.csv` except `run`, and the draft token at its
        position: its round, its id, its source, and the drafter's probability of it."""
        sent = (event.in_flight_draft for event, _ in self._all(events.Sent))
        numbers: dict[Hashable, int] = {each: number for number, each in enumerate(sent, 1)}
        records = []
        for committed, now in self._all(events.Committed):
            drafts = judged_drafts([source for _, source in committed.tokens], committed.rounds)
            places = zip(committed.tokens, drafts, strict=True)
            for at, ((token, source), draft) in enumerate(places, committed.position):
                record = {
                    "position": at,
                    "token": token,
                    "source": source.value,
                    "committed_ms": self._since_began(now),
                }
                record["target_decoded"] = source is TokenSource.TARGET_DECODED
                records.append(record | _drafted(draft, numbers))
        return records

    def prefills(self) -> list[dict[str, float]]:
        """A record for each prefill: when it was sent and answered, and its milliseconds in queue and forward pass."""
        return [
            {
                "sent_ms": self._since_began(opened.asked),
                "queue_ms": _ms(opened.response.queue),
                "forward_ms": _ms(opened.response.forward),
                "arrived_ms": self._since_began(now),
            }
            for opened, now in self._all(events.Opened)
        ]

    def steps(self) -> list[dict[str, Any]]:
        """A record for each draft step: begin, end, number of tokens read by the model, a draft token a branch."""
        return [
            {
                "began_ms": self._since_began(now - drafted.took),
                "ended_ms": self._since_began(now),
                "read": drafted.expansion.read,
                "width": len(drafted.expansion.proposals),
                "drafts": [proposal.token for proposal in drafted.expansion.proposals],
            }
            for drafted, now in self._all(events.Drafted)
        ]

    def self_continuation_passes(self) -> list[dict[str, float]]:
        """A record for each verifier pass of self-continuation: its milliseconds, and when the drafter heard of it."""
        return [
            {"forward_ms": _ms(streamed.forward), "arrived_ms": self._since_began(now)}
            for streamed, now in self._all(events.Streamed)
            if streamed.forward is not None
        ]

    def characters(self, tokens: Iterable[int]) -> list[str]:
        """For each token of the text the characters that it completes: none for a control token, or for a part of a
        character. No text is recorded without a vocabulary."""
        vocabulary = self._vocabulary()
        if vocabulary is None:
            return []
        decoded = Detokenizer(vocabulary)
        found = [decoded.feed(token) for token in tokens]
        if found:
            found[-1] += decoded.end()
        return found

    def pieces(self, tokens: Iterable[int]) -> dict[str, str]:
        """The text of each of `tokens` by itself, control tokens too, by its id as a string. Bytes that are no
        character are U+FFFD."""
        vocabulary = self._vocabulary()
        return {} if vocabulary is None else {f"{token}": vocabulary.spelled(token) for token in sorted({*tokens})}

    def _vocabulary(self) -> Vocabulary | None:
        return next((told.vocabulary for told, _ in self._all(events.VocabularyTaken)), None)

    def _since_began(self, at: float) -> float:
        return _ms(at - next((now for _, now in self._all(events.Began)), 0.0))


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, _DIGITS)


def _drafted(draft: JudgedDraft | None, numbers: Mapping[Hashable, int]) -> dict[str, Any]:
    """`numbers`: of rounds, by the drafts sent."""
    if draft is None:
        return dict.fromkeys(("round", "draft", "draft_source", "confidence"))
    told = {"draft": draft.token.token, "draft_source": draft.token.source.value, "confidence": draft.token.confidence}
    return {"round": numbers.get(draft.request), **told}


def _judged(each: JudgedRound) -> dict[str, Any]:
    looked_up = sum(token.source.looked_up for token in each.tokens)
    return {"judged": each.judged, "accepted": each.accepted, "ran": True, "looked_up": looked_up}
