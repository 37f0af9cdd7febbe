"""What happens to the texts of a pair, for pages that listen; without one, nothing is made or kept."""

import asyncio
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from pydantic import BaseModel

from drafter_client.generation import events
from drafter_client.generation.events import Listener
from drafter_client.metrics.statistics import Stats
from drafter_client.serve.live.messages import PairRound, TextCounts, TextEnded
from specpair.http_service.replies.event_bytes import event_bytes
from specpair.protocol.errors import Overloaded
from specpair.protocol.times import milliseconds
from specpair.speculation.policy.verifier_timeline import InFlightDraft

MOST_READERS = 16
MOST_WAITING = 512  # events for one reader; beyond that, the oldest are dropped
COUNTS_EVERY = 0.1  # seconds between counts of one text


class Feed:
    """Hands what happens to texts to its readers: `Pair(observer=feed)`. Thread-safe, but for the readers."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._readers: tuple[Reader, ...] = ()
        self._closed = False

    @contextmanager
    def run(self, stats: Stats, settings: Mapping[str, Any]) -> Iterator[Listener]:
        """A context around one text, which yields the listener to its events: see `drafter_client.pair.Observer`."""
        with self._lock:
            number = next(self._numbers)
        yield _TextTold(self, number, stats).take

    @property
    def heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._readers)

    def tell(self, name: str, message: BaseModel) -> None:
        """Hand an event to the readers. May be called from any thread; returns at once."""
        event = event_bytes(message.model_dump_json().encode(), name)
        for reader in self._readers:
            reader.put(event)

    @contextmanager
    def heard_by(self, reader: "Reader") -> Iterator[None]:
        """While the block runs, `reader` gets what happens. Raises Overloaded beyond `MOST_READERS`."""
        with self._lock:
            if len(self._readers) >= MOST_READERS:
                raise Overloaded(f"{MOST_READERS} pages listen already: close one", retry_after=10)
            self._readers = (*self._readers, reader)
            if self._closed:
                reader.close()
        try:
            yield
        finally:
            with self._lock:
                self._readers = tuple(each for each in self._readers if each is not reader)

    def close(self) -> None:
        """End all readers, as the service stops. May be called again."""
        with self._lock:
            self._closed = True
            for reader in self._readers:
                reader.close()


class Reader:
    """The events for one page. Made and read in an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[bytes] = deque(maxlen=MOST_WAITING)  # whose methods are atomic
        self._came = asyncio.Event()
        self.closed = False

    def put(self, event: bytes) -> None:
        """Add an event. May be called from any thread."""
        first = not self._waiting
        self._waiting.append(event)
        if first:  # else it has been woken
            self._wake()

    def close(self) -> None:
        """End it. May be called from any thread."""
        self.closed = True
        self._wake()

    async def next(self, seconds: float) -> bytes:
        """All that has come, after at most `seconds` of silence, then nothing."""
        try:
            await asyncio.wait_for(self._came.wait(), seconds)
        except TimeoutError:
            return b""
        self._came.clear()
        found = list[bytes]()
        while self._waiting:
            found.append(self._waiting.popleft())
        return b"".join(found)

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._came.set)


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
