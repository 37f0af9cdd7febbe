"""Server-sent events: as bytes, as a reply that ends as soon as its reader hangs up, and as a feed of events in a
service for web pages; without a page, no event is made or kept."""

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext, suppress
from types import MappingProxyType
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from specpair.http_service.replies.hang_up import HangUp
from specpair.protocol.errors import Overloaded
from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.terminal_text import one_line

COMMENT = b":\n\n"
_LINE_ENDS = {end.encode(): json.dumps(end)[1:-1].encode() for end in "\x85\u2028\u2029"}  # for some clients
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # a buffering proxy would delay tokens
HEARTBEAT = 3.0  # seconds of silence before a comment shows that the connection is alive; clients wait for 10
T = TypeVar("T")
MOST_READERS = 16
MOST_WAITING = 512  # items for one reader; beyond that, the oldest are dropped


def event_bytes(data: bytes, name: str = "") -> bytes:
    """The bytes of an event. `data`: JSON in one line; `name`: empty for none."""
    for end, escaped in _LINE_ENDS.items():
        data = data.replace(end, escaped)
    return (b"event: %s\n" % name.encode() if name else b"") + b"data: %s\n\n" % data


def comment(progress: PromptProgress | None, away: str = "") -> bytes:
    """A comment that keeps a silent stream alive.

    `progress`: of the prompt that is being read, if one is.
    `away`: what is waited for beyond the service, if something is.
    """
    if away:
        return b": %s\n\n" % one_line(away).encode()
    return COMMENT if progress is None else progress.comment()


class EventMessage(BaseModel):
    """A message, or a part of one."""

    model_config = ConfigDict(frozen=True)


def message_event(message: BaseModel, name: str) -> bytes:
    """The bytes of the event of this name that has the message as its data."""
    return event_bytes(message.model_dump_json().encode(), name)


class EventStream(Response):
    """Sends the events of an iterator. The iterator is closed when its reader hangs up, also while it is silent."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[bytes],
        headers: Mapping[str, str] = MappingProxyType({}),
        held: AbstractContextManager[object] | None = None,
    ) -> None:
        """`held`: a context entered before the reply begins, so that its errors are replies."""
        self.status_code, self.background = 200, None
        self.init_headers({**_HEADERS, **headers})
        self._events, self._held = events, held or nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with HangUp(receive):
                await self._send(send)

    async def _send(self, send: Send) -> None:
        async with aclosing(self._events) as events:  # type: ignore[type-var]  # it is a generator
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class EventFeed(Generic[T]):
    """Passes events to its readers. Thread-safe, except the readers."""

    def __init__(self) -> None:
        self._readers_lock = threading.Lock()
        self._readers: tuple[FeedReader[T], ...] = ()
        self._closed = False

    @property
    def heard(self) -> bool:
        return bool(self._readers)

    def put(self, item: T) -> None:
        """Pass an item to the readers. May be called from any thread; returns at once."""
        for reader in self._readers:
            reader.put(item)

    @contextmanager
    def heard_by(self, reader: "FeedReader[T]") -> Iterator[None]:
        """While the block runs, `reader` gets the events. Raises Overloaded beyond `MOST_READERS`."""
        with self._readers_lock:
            if len(self._readers) >= MOST_READERS:
                raise Overloaded(f"{MOST_READERS} pages listen already: close a page", retry_after=10)
            self._readers = (*self._readers, reader)
            if self._closed:
                reader.close()
        try:
            yield
        finally:
            with self._readers_lock:
                self._readers = tuple(each for each in self._readers if each is not reader)

    def close(self) -> None:
        """End all readers, as the service stops. May be called again."""
        with self._readers_lock:
            self._closed = True
            for reader in self._readers:
                reader.close()


class FeedReader(Generic[T]):
    """The events for one page. Made and read in an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[T] = deque(maxlen=MOST_WAITING)  # whose methods are atomic
        self._came, self._ended = asyncio.Event(), asyncio.Event()
        self.closed = False

    def put(self, item: T) -> None:
        """Add an item. May be called from any thread."""
        first = not self._waiting
        self._waiting.append(item)
        if first:  # else it has been woken
            self._soon(self._came.set)

    def close(self) -> None:
        """End it. May be called from any thread."""
        self.closed = True
        self._soon(self._came.set)
        self._soon(self._ended.set)

    async def rest(self, seconds: float) -> None:
        """Wait `seconds` so that more items arrive. Returns at once when the reader is closed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    async def next(self, seconds: float) -> list[T]:
        """All new items; after `seconds` of silence, none."""
        try:
            await asyncio.wait_for(self._came.wait(), seconds)
        except TimeoutError:
            return []
        self._came.clear()
        return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def _soon(self, call: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)
