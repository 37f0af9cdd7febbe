"""The connections to one node: idle ones are kept for the next requests."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from gateway.router.upstream.connection import Headers, NodeConnection, NodeLost
from specpair.protocol.http_reply import ReplyHead, request_head

_CONNECT = 2.0  # seconds to make a connection
_IDLE = 60.0  # seconds that an idle connection is kept: services close theirs after 75


class NodeAddress:
    """Where a node is, from its URL: http or https, and a path that comes before those of requests."""

    def __init__(self, url: str) -> None:
        """`url`: checked by `node_url`."""
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        self.tls = parts.scheme == "https"
        self.port = parts.port or (443 if self.tls else 80)
        self.path = parts.path.rstrip("/").encode()
        self.host_header = parts.netloc.encode()


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
        raise ValueError("the address of a node has no user and no password: give its key with --node-key")
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


class Pool:
    """The connections to one node. Used in the event loop."""

    def __init__(self, address: NodeAddress, clock: Callable[[], float] = time.monotonic) -> None:
        self.address, self._clock = address, clock
        self._idle: list[tuple[float, NodeConnection]] = []  # since when, the latest last
        self._busy: set[NodeConnection] = set()
        self._closed = False
        self._tls = ssl.create_default_context() if address.tls else None

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
        """Break all connections, since the node is away. Who waits for a reply gets NodeLost."""
        for connection in [*self._busy, *(each for _, each in self._idle)]:
            connection.abort(why)
        self._idle.clear()

    def _request(self, method: bytes, target: bytes, headers: Headers, body: bytes) -> bytes:
        sent = [(b"host", self.address.host_header), *headers]
        if body or method in (b"POST", b"PUT", b"PATCH"):
            sent.append((b"content-length", b"%d" % len(body)))
        return request_head(method, self.address.path + target, sent) + body

    async def _connection(self) -> tuple[NodeConnection, bool]:
        """A connection, and whether it was used before."""
        oldest = self._clock() - _IDLE
        while self._idle:
            since, connection = self._idle.pop()
            if since >= oldest and not connection.broken:
                return connection, True
            connection.abort("it was idle for too long")
        where = self.address
        try:
            async with asyncio.timeout(_CONNECT):
                _, made = await asyncio.get_running_loop().create_connection(
                    lambda: NodeConnection(self._clock), where.host, where.port, ssl=self._tls
                )
        except TimeoutError:
            raise NodeLost(f"no connection within {_CONNECT:g} s") from None
        except OSError as error:
            raise NodeLost(f"no connection ({error.strerror or error})") from None
        return made, False
