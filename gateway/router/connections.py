"""Connections to nodes: HTTP/1.1 on uvicorn's own parser, one exchange at a time. Idle ones are kept for the next
requests.

A client library costs 1.5 ms a request here, three times as much as all other work.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import cast
from urllib.parse import urlsplit

from specpair.protocol.http_reply import ReplyError, ReplyHead, ReplyParser, request_head

Headers = Sequence[tuple[bytes, bytes]]
_MOST_HELD = 64 * 1024  # bytes of a reply that wait for their reader; beyond, the node is read no further
_MOST_READ = 64 * 1024 * 1024  # bytes of a reply that is read as a whole
HEAD_SECONDS = 10.0  # from the first byte of a reply's head to its last


class NodeLost(Exception):
    """The connection broke, or could not be made. The message says how."""


class NodeConnection(asyncio.Protocol):
    """A connection. A node that sends anything but one reply to each request is read no further."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop, self._clock = asyncio.get_running_loop(), clock
        self._transport: asyncio.Transport  # from the begin on
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
        if self._lost is not None:
            raise self._lost
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
        if self._reading_paused and self._lost is None:
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
                self.abort(why := f"the reply has more than {most} bytes")
                raise NodeLost(why)
        return b"".join(parts)

    def abort(self, why: str) -> None:
        """Close the connection at once. Its waiters get NodeLost."""
        self.aborted = True
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
        if reply.held > _MOST_HELD and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


_CONNECT = 2.0  # seconds to make a connection
_IDLE = 60.0  # seconds that an idle connection is kept: services close theirs after 75


def node_url(text: str) -> str:
    """The URL of a node, in one spelling. Raises ValueError, which says what is wrong."""
    url = text.strip()
    url = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{text!r} is not the address of a node ({error}): write http://host:port") from None
    whole = url.isascii() and not any(sign.isspace() for sign in url) and port != 0
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or not whole:
        raise ValueError(f"{text!r} is not the address of a node: write http://host:port")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the address of a node must not hold a user or password: give its key with --node-key")
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


class Pool:
    """The connections to one node. Used in the event loop."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`url`: checked by `node_url`; a path in it comes before those of requests."""
        parts, self._clock = urlsplit(url), clock
        tls = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port or (443 if tls else 80)
        self._path, self._host_header = parts.path.rstrip("/").encode(), parts.netloc.encode()
        self._idle: list[tuple[float, NodeConnection]] = []  # since when, the latest last
        self._busy: set[NodeConnection] = set()
        self._closed = False
        self._tls = ssl.create_default_context() if tls else None

    @asynccontextmanager
    async def exchange(
        self, method: bytes, target: bytes, headers: Headers, body: bytes = b""
    ) -> AsyncIterator[tuple[ReplyHead, NodeConnection]]:
        """A context with the head of the reply to a request other than HEAD, and the connection to read its body from.

        `target`: path and query. `headers`: without Host and Content-Length.

        Where it is left before the end of the reply, the node sees that its client is gone. An idle connection that the
        node has closed meanwhile is replaced by a new one. Raises NodeLost.
        """
        request = self._request(method, target, headers, body)
        while True:
            connection, used = await self._connection()
            self._busy.add(connection)
            try:
                try:
                    head = await connection.send(request)
                except NodeLost:
                    if used and not (connection.answered or connection.aborted):
                        continue
                    raise
                yield head, connection
                return
            finally:
                self._busy.discard(connection)
                if connection.reusable and not self._closed:
                    self._idle.append((self._clock(), connection))
                else:
                    connection.abort("its request is over")

    def heard_within(self, seconds: float) -> bool:
        """Whether a byte has come from the node in these last seconds."""
        since = self._clock() - seconds
        return any(each.heard >= since for each in (*self._busy, *(idle for _, idle in self._idle)))

    def close(self) -> None:
        """Close the connections as soon as their requests are over."""
        self._closed = True
        for _, connection in self._idle:
            connection.abort("the node has left")
        self._idle.clear()

    def abort(self, why: str) -> None:
        """Break all connections, since the node is away. Waiters get NodeLost."""
        for connection in [*self._busy, *(each for _, each in self._idle)]:
            connection.abort(why)
        self._idle.clear()

    def _request(self, method: bytes, target: bytes, headers: Headers, body: bytes) -> bytes:
        sent = [(b"host", self._host_header), *headers]
        if body or method in (b"POST", b"PUT", b"PATCH"):
            sent.append((b"content-length", b"%d" % len(body)))
        return request_head(method, self._path + target, sent) + body

    async def _connection(self) -> tuple[NodeConnection, bool]:
        """A connection, and whether it was used before."""
        oldest = self._clock() - _IDLE
        while self._idle:
            since, connection = self._idle.pop()
            if since >= oldest and not connection.broken:
                return connection, True
            connection.abort("it was idle for too long")
        try:
            async with asyncio.timeout(_CONNECT):
                _, made = await asyncio.get_running_loop().create_connection(
                    lambda: NodeConnection(self._clock), self._host, self._port, ssl=self._tls
                )
        except TimeoutError:
            raise NodeLost(f"no connection within {_CONNECT:g} s") from None
        except OSError as error:
            raise NodeLost(f"no connection ({error.strerror or error})") from None
        return made, False
