"""Connections with limits: on the time, the bytes and the headers of a request head, and on replies that nobody reads.

uvicorn limits the idle time between two requests. It does not limit the time before the first request, the time and the
size of a request head, the requests sent ahead of their replies, nor how long a reply waits for its reader. What
httptools, its parser, keeps of a head without end has no bound. (h11, its other parser, takes 16 KiB of a head, and
uvicorn then replies with 400.)
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, cast

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from specpair.http_service.connections.half_closed import HalfClosedConnection
from specpair.http_service.connections.joined_writes import JoinedWrites
from specpair.protocol.errors import HeadTooLarge, RequestError, RequestTimeout
from specpair.protocol.responses import ErrorResponse

if TYPE_CHECKING:
    _Protocol = HttpToolsProtocol
else:
    _Protocol = object

_SEPARATORS = 4  # bytes of a header beside its name and its value


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may take."""

    head_seconds: float = 10.0  # from the opening of the connection, or from the first byte after a response
    head_bytes: int = 32 * 1024  # of a request line with its headers, and of what is between two pieces of a body
    headers: int = 100
    ahead: int = 16  # requests behind the one that is being answered
    stalled_seconds: float = 60.0  # for which a client may read nothing of a reply


class GuardedConnection(_Protocol):
    """One of uvicorn's protocols of HTTP/1, with limits. `guarded` mixes it in.

    A request beyond them, or that is no HTTP, gets a reply behind those to the requests before it. Then the connection
    is closed.
    """

    limits: ClassVar[Limits]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._joined = JoinedWrites(transport, self.loop.call_soon)
        super().connection_made(cast(asyncio.Transport, self._joined))
        self._began = False
        self._refusal: HeadTooLarge | None = None  # what the parser stopped for
        self._before: Any = None  # uvicorn's cycle of the request before the latest one, if that waits for it
        self._last: bytes | None = None  # what is sent behind the replies under way; then the connection is closed
        self._unread = 0  # bytes since a head was complete, or since a piece of a body
        self._advanced = False  # whether the bytes that are being read hold one of these
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._start_deadline()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._last is not None:
            return
        self._began, self._advanced = True, False
        super().data_received(data)
        self._unread = 0 if self._advanced else self._unread + len(data)
        if self._unread > self.limits.head_bytes or len(self.headers or ()) > self.limits.headers:
            self._refuse(self._too_large())
        if self._being_answered():
            _cancel(self._deadline)
            self._deadline = None
            self._began = False
        else:
            self._start_deadline()

    def on_headers_complete(self) -> None:
        self._advanced = True
        size = len(self.url) + sum(len(name) + len(value) + _SEPARATORS for name, value in self.headers)
        if size > self.limits.head_bytes or len(self.headers) > self.limits.headers:
            self._stop_parser(self._too_large())
        if len(self.pipeline) >= self.limits.ahead:
            self._stop_parser(HeadTooLarge(f"more than {self.limits.ahead} requests came ahead of their replies"))
        before = self.cycle
        super().on_headers_complete()
        self._before = before if self.pipeline else None

    def on_body(self, body: bytes) -> None:
        self._advanced = True
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        if self._refusal is None:
            self._refuse(RequestError("what came is no request of HTTP/1.1"), 400)
        else:
            self._refuse(self._refusal)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._last is not None and not self._being_answered():
            self._end()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        self._joined.send_held()
        return super().eof_received()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.limits.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._stalled)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._deadline, self._stalled):
            _cancel(timer)
        super().connection_lost(exc)

    def _being_answered(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_deadline(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.limits.head_seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._deadline = None
        if self._began and self.cycle is None:
            seconds = self.limits.head_seconds
            self._refuse(RequestTimeout(f"the request's head was not complete after {seconds:g} s: send it at once"))
        else:
            self.transport.close()

    def _too_large(self) -> HeadTooLarge:
        most = self.limits
        return HeadTooLarge(
            f"the request's head has more than {most.head_bytes} bytes or {most.headers} headers: send less in headers "
            "and in the path"
        )

    def _stop_parser(self, refusal: HeadTooLarge) -> None:
        """To be called by the parser, which stops, and has `send_400_response` called."""
        self._refusal = refusal
        raise refusal

    def _refuse(self, error: RequestError, status: int | None = None) -> None:
        """Reply with an error behind the replies under way, close the connection, and read no more until then.

        `status`: None: the error's own.
        """
        if self.transport.is_closing() or self._last is not None:
            return
        self._last, cycle = _response(error, status or error.status), self.cycle
        if cycle is not None and cycle.more_body:  # what cannot be read is the body of this request
            queued: Any = getattr(self, "pipeline", None)  # h11's protocol takes no requests ahead
            if queued and queued[0][0] is cycle:
                queued.popleft()
                self.cycle = self._before
            else:
                self._last = b"" if cycle.response_started else self._last
                self._end()
        if not self._being_answered():
            self._end()

    def _end(self) -> None:
        """Send what is to be the last, and close the connection."""
        if not self.transport.is_closing():
            if self._last:
                self.transport.write(self._last)
            self.transport.close()


def guarded(limits: Limits, base: type[Any] = HttpToolsProtocol) -> type[asyncio.Protocol]:
    """`base`, which is one of uvicorn's protocols of HTTP/1, with `limits`; `base` itself if it has limits already."""
    if issubclass(base, GuardedConnection):
        return base
    bases = GuardedConnection, HalfClosedConnection, base
    return cast(type[asyncio.Protocol], type(f"Guarded{base.__name__}", bases, {"limits": limits}))


def guard_server(receive: Any) -> None:
    """Put limits on the connections of the uvicorn whose lifespan calls an application with `receive`.

    An application does not choose the class of its server's connections. But uvicorn's `receive` is a method of an
    object that has the server's configuration, and that names the class. Other servers have limits of their own.
    """
    config: Any = getattr(getattr(receive, "__self__", None), "config", None)
    protocol = getattr(config, "http_protocol_class", None)
    if isinstance(protocol, type) and issubclass(protocol, (HttpToolsProtocol, H11Protocol)):
        config.http_protocol_class = guarded(Limits(), protocol)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    """Cancel a timer that may be running."""
    if timer is not None:
        timer.cancel()


def _response(error: RequestError, status: int) -> bytes:
    body = ErrorResponse.of(error).body()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nconnection: close\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
