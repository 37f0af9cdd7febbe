"""The endpoints of `drafter serve`, and `GET /events`: what the texts of a pair do, as server-sent events.

Without readers, no event is made or kept.
"""

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from drafter_client.generation import events
from drafter_client.generation.events import Listener
from drafter_client.serve.messages import Network, PairRound, PairState, TextCounts, TextEnded
from drafter_client.serve.network import NetworkFeed
from drafter_client.statistics import Stats
from gateway.operations import refine, text_operations
from specpair.http_service.keys.gate import Gate
from specpair.http_service.observability.health import state_operations
from specpair.http_service.openapi import document as built
from specpair.http_service.openapi.operation import ALWAYS, Errors, Json, Operation, parameter
from specpair.http_service.replies.events import COMMENT, HEARTBEAT, EventFeed, EventStream, FeedReader, message_event
from specpair.numbers import milliseconds
from specpair.protocol import errors
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.policy.verifier_timeline import InFlightDraft

COUNTS_EVERY = 0.1  # seconds between counts of one text


class Feed(EventFeed[bytes]):
    """Sends the events of texts to its readers: `Pair(observer=feed)`. Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count(1)
        self._lock = threading.Lock()

    @contextmanager
    def run(self, stats: Stats, settings: Mapping[str, Any]) -> Iterator[Listener]:
        """A context around one text, which yields the listener to its events: see `options.Observer`."""
        with self._lock:
            number = next(self._numbers)
        yield _TextTeller(self, number, stats).take

    def tell(self, name: str, message: BaseModel) -> None:
        """Send an event to the readers. May be called from any thread; returns at once."""
        self.put(message_event(message, name))


class _TextTeller:
    """Reports a text. The listener's times are seconds on the run's clock."""

    def __init__(self, feed: Feed, number: int, stats: Stats) -> None:
        self._feed, self._number, self._stats = feed, number, stats
        self._mode = ""  # that writes the text now; empty: it was chosen before anybody listened
        self._drafting = 0.0  # seconds since the last draft was sent
        self._spent: dict[InFlightDraft, tuple[float, str]] = {}  # of drafts in flight: drafting, and the schedule
        self._counted: float | None = None  # when the counts were told

    def take(self, event: events.RunEvent, now: float) -> None:
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


TEXTS, NETWORK = "texts", "network"  # what a reader may ask for
LOOK = 2.0  # seconds of silence after which the state is looked at


class PairEventEndpoints:
    def __init__(self, gate: Gate, feed: Feed, network: NetworkFeed, state: Callable[[], PairState]) -> None:
        self._gate, self._feed, self._network, self._state = gate, feed, network, state

    async def watch_pair(self, request: Request) -> Response:
        """What the pair does, as it happens: its state, rounds and counts of its texts. No text or token is sent.

        With `?of=network`, the network instead: the verifiers, a router before them, and the links, every few seconds.
        The stream ends with the service. An event may be missing where a reader is slow.
        """
        self._gate.admit(request)
        of = request.query_params.get("of", TEXTS)
        if of not in (TEXTS, NETWORK):
            raise InvalidRequest(f"of must be {TEXTS} or {NETWORK}, not {of[:100]!r}", param="of")
        reader = FeedReader[bytes]()
        if of == NETWORK:
            return EventStream(_network_events(reader), held=self._network.heard_by(reader))
        return EventStream(_events(reader, self._state), held=self._feed.heard_by(reader))


async def _events(reader: FeedReader[bytes], state: Callable[[], PairState]) -> AsyncIterator[bytes]:
    told: PairState | None = None
    while not reader.closed:
        found = state()
        if found != told:
            yield message_event(found, "state")
            told = found
        yield b"".join(await reader.next(LOOK)) or COMMENT


async def _network_events(reader: FeedReader[bytes]) -> AsyncIterator[bytes]:
    while not reader.closed:
        yield b"".join(await reader.next(HEARTBEAT)) or COMMENT


TITLE = "specpair drafter"
_DESCRIPTION = """Serves texts of a target model on another machine to OpenAI's clients; this machine drafts.

Every path works with and without a trailing slash, and HEAD works where GET does. A body may be compressed
(`Content-Encoding: gzip` or `deflate`). An unknown path is a 404 (`not_found`), another method a 405
(`method_not_allowed`, with the header Allow). All errors have one shape, and each has a stable `code`."""

_TEXTS: Errors = (
    *(errors.EngineError, errors.Overloaded, errors.ShuttingDown, errors.VerifierAway, errors.ModelMismatch),
    errors.TargetChanged,
)
_ENCODING: Errors = (errors.EngineError, errors.Overloaded, errors.VerifierAway, errors.ModelMismatch)
TEXTS_SERVED = text_operations(ALWAYS, _TEXTS, _ENCODING)
STATE = state_operations(ALWAYS)
_OF = parameter(
    "of",
    "query",
    "What is told of: texts (the events state, round, counts, ended), or the network (network).",
    {"type": "string", "enum": [TEXTS, NETWORK], "default": TEXTS},
)
EVENTS = (
    Operation(
        "GET",
        "/events",
        PairEventEndpoints.watch_pair,
        "operation",
        None,
        (*ALWAYS, errors.InvalidRequest, errors.Overloaded),
        parameters=(_OF,),
        events=(
            ("state", PairState),
            ("round", PairRound),
            ("counts", TextCounts),
            ("ended", TextEnded),
            ("network", Network),
        ),
        last=(),
    ),
)
SERVICE = built.DescribedService(
    title=TITLE,
    description=_DESCRIPTION,
    key="A key that the drafter serves. Not needed if it has none.",
    operations=(*TEXTS_SERVED, *STATE, *EVENTS),
    refine=refine,
)


@cache
def document(keyed: bool = False) -> Json:
    """The document of a drafter with or without an API key. Cached: do not change the result."""
    return built.document(SERVICE, keyed)
