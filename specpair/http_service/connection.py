"""One HTTP/1.1 connection of a service: limits a client's input, and passes requests to uvicorn one at a time.

uvicorn limits the idle time between two requests. It does not limit the time and the size of a request head, nor how
long a reply waits for its reader; it loses the body behind an offer of an upgrade; and it drops a client that has shut
down its sending side. A `Connection` stands between the socket and uvicorn's own protocol, and does that.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar, cast

import httptools
from starlette.types import Scope
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from specpair.protocol.errors import HeadTooLarge, RequestError, RequestTimeout
from specpair.protocol.responses import ErrorResponse

# Seconds from the end of what a client sends to the first interim response, to the second (a client that has left has
# refused the first), and between later ones.
PROBES = (0.2, 0.05, 1.0)
_STATE = "specpair.connection"  # key of the ASGI state: the connection of a request
_END_OF_HEAD = b"\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"  # which clients skip
_OFFERS = (b"upgrade", b"http2-settings")  # headers of an offer to change the protocol


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    head_seconds: float = 10.0  # for a request head: from its first byte, or from the opening of the connection
    head_bytes: int = 32 * 1024  # of a request line with its headers, and of what is between two chunks of a body
    headers: int = 100
    stalled_seconds: float = 60.0  # for which a client may read nothing of a reply


def connection_of(scope: Scope) -> "Connection | None":
    """The connection of a request; None: it is of another kind."""
    connection = scope.get("state", {}).get(_STATE)
    return connection if isinstance(connection, Connection) else None


def answered(scope: Scope) -> None:
    """Tell the connection of a request that its reply is complete. Does nothing on another kind of connection."""
    if (connection := connection_of(scope)) is not None:
        connection.answered()


class Connection(asyncio.Protocol):
    """A connection, made by uvicorn: `Config(http=Connection)`.

    Requests that come ahead of a reply wait here. What breaks the limits, or is not HTTP, gets an error as its reply,
    behind the replies to the requests before it. Then the connection is closed. The application has to call `answered`.
    """

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()

    def __init__(
        self,
        config: Config,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Called by uvicorn, with the arguments that it has for its own protocols."""
        self._http = HttpToolsProtocol(config, server_state, {**app_state, _STATE: self}, _loop)
        self._loop = _loop or asyncio.get_running_loop()
        self._unread = b""  # what came and was not handed on
        self._request = _Request()  # the latest one
        self._answering = False  # whether the application has a request
        self._over = False  # whether nothing more is read
        self._paused = False  # whether reading waits for a reply
        self._sender_closed = False  # whether the client sends nothing more
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._probe: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = _Transport(cast(asyncio.Transport, transport), self._loop)
        self._http.connection_made(cast(asyncio.Transport, self._transport))
        self._start_deadline()

    def data_received(self, data: bytes) -> None:
        if not self._over:
            self._unread = self._unread + data if self._unread else data
            self._hand_on()

    def eof_received(self) -> bool:
        """Whether the connection stays open: a complete request has no reply yet, or waits behind another one."""
        self._transport.send_held()
        self._sender_closed = True
        encrypted = self._transport.get_extra_info("sslcontext") is not None  # TLS has no half-closed connections
        if encrypted or not self._answering or not self._request.complete or self._transport.begun:
            return False
        self._plan_probe(*PROBES)
        return True

    def pause_writing(self) -> None:
        self._http.pause_writing()
        self._stalled = self._loop.call_later(self.limits.stalled_seconds, self._transport.abort)

    def resume_writing(self) -> None:
        self._http.resume_writing()
        _cancel(self._stalled)

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        for timer in (self._deadline, self._stalled, self._probe):
            _cancel(timer)
        self._http.connection_lost(exc)

    @property
    def has_whole_request(self) -> bool:
        """Whether the body of the request has arrived that the application has."""
        return self._request.complete

    def abort(self) -> None:
        """Break the connection: for the application, its client has left."""
        self._transport.abort()

    def answered(self) -> None:
        """The reply to the request that the application has is complete."""
        self._answering = False
        if self._over or self._transport.is_closing():
            return
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self._hand_on()
        if not self._answering and self._sender_closed:
            self._close()
        elif not self._answering and (self._unread or not self._request.complete):
            self._start_deadline()

    def _hand_on(self) -> None:
        """Pass input to uvicorn: the rest of a body, and the next request once every request has a reply."""
        while self._unread and not self._over:
            if self._request.read_head and not self._request.complete:
                self._hand_on_body()
            elif self._answering:
                if len(self._unread) > self.limits.head_bytes:
                    self._paused = True
                    self._transport.pause_reading()
                return
            elif not self._hand_on_head():
                return

    def _hand_on_head(self) -> bool:
        """Read the part of a head that has arrived. Returns whether the head is complete and was passed on."""
        if self._request.complete:
            self._request = _Request()
        request = self._request
        while not request.read_head:
            end = self._unread.find(_END_OF_HEAD, max(request.size - len(_END_OF_HEAD) + 1, 0))
            upto = len(self._unread) if end < 0 else end + len(_END_OF_HEAD)
            if not request.parse(self._unread[request.size : upto]):
                self._refuse(RequestError("this is not a request of HTTP/1.1"), 400)
                return False
            request.size = upto
            if upto > self.limits.head_bytes or len(request.headers) > self.limits.headers:
                most = self.limits
                self._refuse(
                    HeadTooLarge(
                        f"the request's head has more than {most.head_bytes} bytes or {most.headers} headers: send "
                        "less in headers and in the path"
                    )
                )
                return False
            if end < 0 and not request.read_head:
                self._start_deadline()
                return False
        self._stop_deadline()
        self._answering, self._transport.begun = True, False
        head, self._unread = self._unread[: request.size], self._unread[request.size :]
        if request.offers_upgrade:
            head = _without_offers(head, request.headers)
            self._request = request = _Request()
            request.parse(head)
        self._http.data_received(head + self._taken_of_body() if request.body_bytes else head)
        return True

    def _taken_of_body(self) -> bytes:
        """The part that has arrived of a body whose head gives its length."""
        request = self._request
        part, self._unread = self._unread[: request.body_bytes], self._unread[request.body_bytes :]
        request.body_bytes -= len(part)
        request.complete = not request.body_bytes
        return part

    def _hand_on_body(self) -> None:
        request = self._request
        if request.body_bytes:
            part = self._taken_of_body()
        else:
            upto = request.end_of_chunks(self._unread)
            part, self._unread = self._unread[:upto], self._unread[upto:]
            if not request.parse(part) or request.between > self.limits.head_bytes:
                self._refuse(RequestError("the request's body is not as chunks of HTTP/1.1 are"), 400)
                return
        if request.complete and not self._answering:
            self._stop_deadline()
        self._http.data_received(part)

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self._loop.call_later(self.limits.head_seconds, self._too_late)

    def _stop_deadline(self) -> None:
        _cancel(self._deadline)
        self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self._unread and not self._answering:
            seconds = self.limits.head_seconds
            self._refuse(RequestTimeout(f"the request's head was not complete after {seconds:g} s: send it at once"))
        else:
            self._close()

    def _refuse(self, error: RequestError, status: int | None = None) -> None:
        """Reply with an error unless a reply has begun, and close the connection. `status`: None: the error's own."""
        if not (self._answering and self._transport.begun):
            status, body = status or error.status, ErrorResponse.of(error).body()
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nconnection: close\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            self._transport.write(head.encode() + body)
        self._close()

    def _close(self) -> None:
        self._over = True
        self._transport.close()

    def _plan_probe(self, seconds: float, *later: float) -> None:
        self._probe = self._loop.call_later(seconds, self._send_probe, *(later or (seconds,)))

    def _send_probe(self, *later: float) -> None:
        """Send an interim response, which detects a client that has left: the connection is then lost."""
        if self._answering and not self._transport.begun and not self._transport.is_closing():
            if self._request.version == "1.1":
                self._transport.write(INTERIM)
            self._plan_probe(*later)


class _Request:
    """Finds the end of one request with httptools, whose parser calls the methods that begin with `on_`."""

    def __init__(self) -> None:
        self._parser: Any = httptools.HttpRequestParser(self)
        self.headers: list[tuple[bytes, bytes]] = []  # names in lower case
        self.size = 0  # bytes of the head that were parsed
        self.read_head = False
        self.complete = False
        self.offers_upgrade = False
        self.version = ""
        self.body_bytes = 0  # that are still to come, where the head has told their number
        self.between = 0  # bytes since the last part of a body in chunks
        self._tail = b""  # the last bytes of a body in chunks

    def parse(self, data: bytes) -> bool:
        """Parse what follows. Returns whether it is HTTP/1.1; `CONNECT`, which asks for a proxy, is not."""
        self.between += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.offers_upgrade = True
            return bool(self._parser.get_method() != b"CONNECT")
        except httptools.HttpParserError:
            return False
        return True

    def end_of_chunks(self, data: bytes) -> int:
        """The number of bytes of `data` up to the end of a chunked body, which ends like a head."""
        came = self._tail + data
        end = came.find(_END_OF_HEAD)
        upto = len(data) if end < 0 else end + len(_END_OF_HEAD) - len(self._tail)
        self._tail = (self._tail + data[:upto])[1 - len(_END_OF_HEAD) :]
        return upto

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.read_head = True
        self.version = self._parser.get_http_version()
        self.body_bytes = next((int(value) for name, value in self.headers if name == b"content-length"), 0)

    def on_body(self, body: bytes) -> None:
        self.between = 0

    def on_message_complete(self) -> None:
        self.complete = True


class _Transport:
    """The transport of a connection, which sends a response's head together with the first bytes of its body.

    uvicorn writes them one after the other, and its loops send each at once: two packets, two system calls, and a
    client that wakes up twice. So a head is held until the next write, or until the event loop's next turn.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = b""
        self.begun = False  # whether something was written for the latest request

    def write(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        if self._held:
            data, self._held = self._held + data, b""
        elif not self.begun and data != INTERIM:
            self.begun = True
            self._held = data
            self._loop.call_soon(self.send_held)
            return
        self._transport.write(data)

    def close(self) -> None:
        self.send_held()
        self._transport.close()

    def send_held(self) -> None:
        """Send the held head unless the client has left."""
        data, self._held = self._held, b""
        if data and not self._transport.is_closing():  # uvloop's raises an error where the client is away
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _without_offers(head: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """A request head without the offer to change the protocol, which a server may ignore (RFC 9110, section 7.8)."""
    line = head.lstrip(b"\r\n").partition(b"\r\n")[0]
    kept = [line]
    for name, value in headers:
        if name == b"connection":
            options = [each.strip() for each in value.split(b",")]
            value = b", ".join(each for each in options if each.lower() not in _OFFERS)
        if name not in _OFFERS and (value or name != b"connection"):
            kept.append(name + b": " + value)
    return b"\r\n".join(kept) + _END_OF_HEAD


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
