"""Messages between a front and the engine's process, in order, over a pair of sockets.

Both ends are processes of one program, so they trust each other's pickles. A request crosses as one message, and so
does most often its reply.
"""

import asyncio
import pickle
import socket
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from specpair.http_service.keys.access import Caller
from specpair.protocol.errors import SpecPairError

Headers = list[tuple[bytes, bytes]]
_LENGTH = struct.Struct("<Q")  # of a message, before it


class RequestOpened(NamedTuple):
    """Of a front: a request has come."""

    number: int  # of the request, in its front
    scope: dict[str, Any]  # of ASGI: what `SCOPE` names
    caller: Caller | SpecPairError
    request_id: str
    message: Any = None  # the request's body as a model; None: the engine's process reads it, or there is none


class Received(NamedTuple):
    """Of a front: what the client sent next, a message of ASGI."""

    number: int
    message: Any


class PartsSent(NamedTuple):
    """Of a front: so many further parts of a reply were handed to the network."""

    number: int
    parts: int


class Counted(NamedTuple):
    """Of a front: requests that are over, for the metrics."""

    requests: list[tuple[str, int, float, str]]  # route, status, seconds, key


class Ready(NamedTuple):
    """Of a front: it serves."""


class Begun(NamedTuple):
    """Of the engine's process: the head of a reply, with the first part of its body."""

    number: int
    status: int
    headers: Headers
    body: bytes
    more: bool  # whether the body has further parts


class Part(NamedTuple):
    """Of the engine's process: a further part of a reply's body."""

    number: int
    body: bytes
    more: bool


class Wanted(NamedTuple):
    """Of the engine's process: it wants what the client sends next."""

    number: int


class ContextLength(NamedTuple):
    """Of the engine's process: the tokens that the loaded model's context holds."""

    tokens: int


class Unshared(NamedTuple):
    """Of the engine's process: from now on, serve this machine only."""


class StopFront(NamedTuple):
    """Of the engine's process: end, after the requests under way."""


SCOPE = ("method", "path", "raw_path", "root_path", "query_string", "headers", "scheme", "http_version")
ADDRESSES = ("client", "server")


class Link(Protocol):
    """One end of a channel."""

    def send(self, message: NamedTuple) -> None:
        """Send a message. Does nothing once the other end is gone."""

    def close(self) -> None:
        """End the channel."""


class Channel(asyncio.Protocol):
    """A `Link` over sockets. Used in an event loop."""

    def __init__(self, received: Callable[[Any], object], lost: Callable[[], object]) -> None:
        """`received(message)`: called for each message. `lost`: called when the other end is gone."""
        self._received, self._lost = received, lost
        self._unread = bytearray()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def over(cls, end: socket.socket, received: Callable[[Any], object], lost: Callable[[], object]) -> "Channel":
        """The channel over one of a pair of sockets."""
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_unix_connection(lambda: cls(received, lost), sock=end)
        return channel

    def send(self, message: NamedTuple) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(packed(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        begin, end = 0, len(self._unread)
        with memoryview(self._unread) as unread:
            messages = []
            while end - begin >= _LENGTH.size:
                behind = begin + _LENGTH.size + _LENGTH.unpack_from(unread, begin)[0]
                if behind > end:
                    break
                messages.append(pickle.loads(unread[begin + _LENGTH.size : behind]))
                begin = behind
        del self._unread[:begin]
        for message in messages:
            self._received(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost()


def packed(message: NamedTuple) -> bytes:
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(content)) + content


def first_message(end: socket.socket) -> Any:
    """Wait for the first message, before there is a channel over this end."""

    def read(size: int) -> bytes:
        content = b""
        while len(content) < size:
            part = end.recv(size - len(content))
            if not part:
                raise ConnectionError("the other end of the channel is gone")
            content += part
        return content

    return pickle.loads(read(_LENGTH.unpack(read(_LENGTH.size))[0]))
