"""One HTTP/1.1 connection to a node, on uvicorn's own parser: one exchange at a time, and no byte is held for long."""

import asyncio
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple, cast

import httptools

Headers = Sequence[tuple[bytes, bytes]]
_MOST_HELD = 64 * 1024  # bytes of a reply that wait for their reader; beyond, the node is read no further


class NodeLost(Exception):
    """The connection broke, or could not be made. The message says how."""


class ReplyHead(NamedTuple):
    """The begin of a reply."""

    status: int
    headers: list[tuple[bytes, bytes]]  # names in lower case


class Connection(asyncio.Protocol):
    """A connection. Interim responses (1xx) are skipped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop, self._clock = asyncio.get_running_loop(), clock
        self._transport: asyncio.Transport | None = None
        self._lost: NodeLost | None = None
        self._waiting: asyncio.Future[None] | None = None
        self.aborted = False  # whether this side has closed it
        self.heard = -inf  # when a byte last came
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._head: ReplyHead | None = None
        self._body: list[bytes] = []
        self._held = 0
        self._complete = self._keep_alive = self._reading_paused = False
        self.answered = False  # whether a byte of the reply has come

    @property
    def reusable(self) -> bool:
        """Whether another exchange can follow."""
        return self._complete and self._lost is None and self._keep_alive

    @property
    def broken(self) -> bool:
        return self._lost is not None

    async def send(self, request: bytes, *, bodiless: bool = False) -> ReplyHead:
        """Send a request, and wait for the head of its reply. `bodiless`: the reply has no body, as to HEAD.

        Raises NodeLost.
        """
        if self._lost is not None or self._transport is None:
            raise self._lost or NodeLost("the connection was closed")
        self._begin()
        self._transport.write(request)
        while self._head is None:
            await self._wait()
        if bodiless:
            self._complete = True
            self.abort("the reply has no body")  # the parser would wait for one
        return self._head

    async def read(self) -> tuple[bytes, bool]:
        """Wait for more of the reply's body. Returns it, and whether it was the last. Raises NodeLost."""
        while not (self._body or self._complete):
            await self._wait()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body, self._held = [], 0
        if self._reading_paused and self._transport is not None and self._lost is None:
            self._reading_paused = False
            self._transport.resume_reading()
        return body, self._complete

    async def read_all(self) -> bytes:
        """The rest of the reply's body. Raises NodeLost."""
        whole, last = b"", False
        while not last:
            body, last = await self.read()
            whole += body
        return whole

    def abort(self, why: str) -> None:
        """Close the connection at once. Who waits for it gets NodeLost."""
        self.aborted = True
        if self._transport is not None:
            self._transport.abort()
        self._lose(why)

    async def _wait(self) -> None:
        if self._lost is not None:
            raise self._lost
        self._waiting = self._loop.create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _lose(self, why: str) -> None:
        if self._lost is None:
            self._lost = NodeLost(why)
        self._wake()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def connection_lost(self, exc: Exception | None) -> None:
        if self._head is not None and not self._complete and exc is None:
            self._parser_ends()
        self._lose("the connection was closed" if exc is None else f"the connection broke ({exc})")

    def _parser_ends(self) -> None:
        """A reply without a length ends with its connection."""
        names = {name for name, _ in self._headers}
        if not names & {b"content-length", b"transfer-encoding"}:
            self._complete = True

    def data_received(self, data: bytes) -> None:
        self.answered, self.heard = True, self._clock()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.abort(f"what came is no HTTP/1.1 ({error})")
        self._wake()
        if self._held > _MOST_HELD and self._transport is not None and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._head = ReplyHead(status, self._headers)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self._held += len(body)

    def on_message_complete(self) -> None:
        if self._head is None:
            self._headers = []  # of an interim response
        else:
            self._complete, self._keep_alive = True, self._parser.should_keep_alive()  # later it forgets
