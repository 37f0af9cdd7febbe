"""One HTTP/1.1 connection to a node, on uvicorn's own parser: one exchange at a time, and no byte is held for long."""

import asyncio
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import cast

from specpair.protocol.http_reply import ReplyError, ReplyHead, ReplyParser

Headers = Sequence[tuple[bytes, bytes]]
_MOST_HELD = 64 * 1024  # bytes of a reply that wait for their reader; beyond, the node is read no further
_MOST_READ = 64 * 1024 * 1024  # bytes of a reply that is read as a whole
HEAD_SECONDS = 10.0  # from the first byte of a reply's head to its last


class NodeLost(Exception):
    """The connection broke, or could not be made. The message says how."""


class NodeConnection(asyncio.Protocol):
    """A connection. A node that sends something else than one reply to each request is read no further."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop, self._clock = asyncio.get_running_loop(), clock
        self._transport: asyncio.Transport | None = None
        self._lost: NodeLost | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None  # of a head whose begin has come
        self._reply: ReplyParser | None = None  # to the latest request
        self._reading_paused = False
        self.aborted = False  # whether this side has closed it
        self.answered = False  # whether a byte of the reply has come
        self.heard = -inf  # when a byte last came

    @property
    def reusable(self) -> bool:
        """Whether another exchange can follow."""
        return self._lost is None and self._reply is not None and self._reply.reusable

    @property
    def broken(self) -> bool:
        return self._lost is not None

    async def send(self, request: bytes) -> ReplyHead:
        """Send a request other than HEAD, and wait for the head of its reply. Raises NodeLost."""
        if self._lost is not None or self._transport is None:
            raise self._lost or NodeLost("the connection was closed")
        self._reply, self.answered, self._reading_paused = ReplyParser(), False, False
        self._transport.write(request)
        while self._reply.head is None:
            await self._wait()
        return self._reply.head

    async def read(self) -> tuple[bytes, bool]:
        """Wait for more of the reply's body. Returns it, and whether it was the last. Raises NodeLost."""
        reply = self._reply
        assert reply is not None
        while not (reply.held or reply.complete):
            await self._wait()
        body = reply.take()
        if self._reading_paused and self._transport is not None and self._lost is None:
            self._reading_paused = False
            self._transport.resume_reading()
        return body, reply.complete

    async def read_all(self, most: int = _MOST_READ) -> bytes:
        """The rest of the reply's body. Raises NodeLost, also for one of more than `most` bytes."""
        parts, size, last = [], 0, False
        while not last:
            body, last = await self.read()
            parts.append(body)
            size += len(body)
            if size > most:
                self.abort(f"the reply has more than {most} bytes")
                raise self._lost or NodeLost("the connection was closed")
        return b"".join(parts)

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
        if self._reply is not None:
            self._reply.end()
        self._cancel_deadline()
        self._wake()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def connection_lost(self, exc: Exception | None) -> None:
        reply, why = self._reply, "the connection was closed" if exc is None else f"the connection broke ({exc})"
        if reply is not None and exc is None and self._lost is None:
            try:
                reply.end_of_input()
            except ReplyError as error:
                why = str(error)
        self._lose(why)

    def data_received(self, data: bytes) -> None:
        self.answered, self.heard = True, self._clock()
        reply = self._reply
        if reply is None or reply.complete:
            self.abort("the node has sent what nobody asked for")
            return
        try:
            reply.feed(data)
        except ReplyError as error:
            self.abort(str(error))
        if not reply.within_head:
            self._cancel_deadline()
        elif self._deadline is None and self._lost is None:
            why = f"the head of the reply was not complete after {HEAD_SECONDS:g} s"
            self._deadline = self._loop.call_later(HEAD_SECONDS, self.abort, why)
        self._wake()
        if reply.held > _MOST_HELD and self._transport is not None and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
