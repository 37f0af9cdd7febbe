"""`GET /events`: what the pair does, as server-sent events."""

from collections.abc import AsyncIterator, Callable

from starlette.requests import Request
from starlette.responses import Response

from drafter_client.serve.live.feed import Feed
from drafter_client.serve.live.messages import PairState
from specpair.http_service.keys.gate import Gate
from specpair.http_service.replies.event_bytes import COMMENT, event_bytes
from specpair.http_service.replies.event_feed import Reader
from specpair.http_service.replies.event_stream import EventStream

LOOK = 2.0  # seconds of silence after which the state is looked at


class LiveEndpoints:
    """The endpoint as a method."""

    def __init__(self, gate: Gate, feed: Feed, state: Callable[[], PairState]) -> None:
        self._gate, self._feed, self._state = gate, feed, state

    async def watch_pair(self, request: Request) -> Response:
        """What the pair does, as it happens: its state, rounds and counts of its texts. No text and no token is told.

        The stream ends with the service. An event may be missing where a reader is slow.
        """
        self._gate.admit(request)
        reader = Reader[bytes]()
        return EventStream(_events(reader, self._state), held=self._feed.heard_by(reader))


async def _events(reader: Reader[bytes], state: Callable[[], PairState]) -> AsyncIterator[bytes]:
    told: PairState | None = None
    while not reader.closed:
        found = state()
        if found != told:
            yield event_bytes(found.model_dump_json().encode(), "state")
            told = found
        yield b"".join(await reader.next(LOOK)) or COMMENT
