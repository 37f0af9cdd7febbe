"""`GET /events`: what the pair does, as server-sent events."""

from collections.abc import AsyncIterator, Callable

from starlette.requests import Request
from starlette.responses import Response

from drafter_client.serve.live.feed import Feed
from drafter_client.serve.live.messages import PairState
from drafter_client.serve.network.watch import NetworkFeed
from specpair.http_service.keys.gate import Gate
from specpair.http_service.replies.event_feed import FeedReader
from specpair.http_service.replies.events import COMMENT, HEARTBEAT, EventStream, message_event
from specpair.protocol.errors import InvalidRequest

TEXTS, NETWORK = "texts", "network"  # what a reader may ask for
LOOK = 2.0  # seconds of silence after which the state is looked at


class LiveEndpoints:
    """The endpoint as a method."""

    def __init__(self, gate: Gate, feed: Feed, network: NetworkFeed, state: Callable[[], PairState]) -> None:
        self._gate, self._feed, self._network, self._state = gate, feed, network, state

    async def watch_pair(self, request: Request) -> Response:
        """What the pair does, as it happens: its state, rounds and counts of its texts. No text and no token is told.

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
