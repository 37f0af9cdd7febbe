"""What happens to the texts of a pair, for pages that listen; without one, nothing is made or kept."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from pydantic import BaseModel

from drafter_client.generation import events
from drafter_client.generation.events import Listener
from drafter_client.metrics.statistics import Stats
from drafter_client.serve.live.messages import PairRound, TextCounts, TextEnded
from specpair.http_service.replies.event_feed import EventFeed
from specpair.http_service.replies.events import message_event
from specpair.protocol.times import milliseconds
from specpair.speculation.policy.verifier_timeline import InFlightDraft

COUNTS_EVERY = 0.1  # seconds between counts of one text


class Feed(EventFeed[bytes]):
    """Hands what happens to texts to its readers, as events: `Pair(observer=feed)`. Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count(1)
        self._lock = threading.Lock()

    @contextmanager
    def run(self, stats: Stats, settings: Mapping[str, Any]) -> Iterator[Listener]:
        """A context around one text, which yields the listener to its events: see `drafter_client.pair.Observer`."""
        with self._lock:
            number = next(self._numbers)
        yield _TextTold(self, number, stats).take

    def tell(self, name: str, message: BaseModel) -> None:
        """Hand an event to the readers. May be called from any thread; returns at once."""
        self.put(message_event(message, name))


class _TextTold:
    """Tells of one text. The listener's times are seconds on the run's clock."""

    def __init__(self, feed: Feed, number: int, stats: Stats) -> None:
        self._feed, self._number, self._stats = feed, number, stats
        self._mode = ""  # that writes the text now; empty: it was chosen before anybody listened
        self._drafting = 0.0  # seconds since the last draft was sent
        self._spent: dict[InFlightDraft, tuple[float, str]] = {}  # of drafts in flight: drafting, and the schedule
        self._counted: float | None = None  # when the counts were told

    def take(self, event: events.RunEvent, now: float) -> None:
        """Tell of an event, a `Listener`."""
        if not self._feed.heard:
            return
        match event:
            case events.ModeChosen(mode):
                self._mode = mode
            case events.Drafted():
                self._drafting += event.took
            case events.Sent(in_flight_draft, schedule):
                self._spent[in_flight_draft] = self._drafting, schedule.value
                self._drafting = 0.0
            case events.Answered():
                self._round(event, now)
            case events.Committed():
                if self._counted is None or now - self._counted >= COUNTS_EVERY:
                    self._counts(now)
            case events.Ended():
                self._counts(now)
                ended = TextEnded(text=self._number, finish_reason=event.finish_reason, why=event.why)
                self._feed.tell("ended", ended)
            case _:
                pass

    def _round(self, answered: events.Answered, now: float) -> None:
        draft, response = answered.in_flight_draft, answered.response
        spent = self._spent.pop(draft, None)
        if spent is None:  # it was sent before anybody listened
            return
        told = PairRound(
            text=self._number,
            sent_ms=milliseconds(draft.sent_at),
            arrived_ms=milliseconds(now),
            drafting_ms=milliseconds(spent[0]),
            queue_ms=milliseconds(response.queue),
            forward_ms=milliseconds(response.forward),
            draft_tokens=len(draft.draft),
            judged=response.judged,
            schedule=spent[1],
        )
        self._feed.tell("round", told)

    def _counts(self, now: float) -> None:
        self._counted, stats = now, self._stats
        told = TextCounts(
            text=self._number,
            at_ms=milliseconds(now),
            mode=self._mode or stats.mode,
            generated=stats.generated_tokens,
            rounds=stats.rounds,
            drafted=stats.drafted,
            accepted=stats.accepted,
        )
        self._feed.tell("counts", told)
