"""Closes connections that send no complete request head in time. Used by the services of both commands.

uvicorn limits the idle time between two requests. It does not limit the time before the first request, nor the time
that a request head takes.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from speculation.errors import RequestTimeout
from speculation.protocol.responses import ErrorResponse


def with_head_deadline(
    seconds: float, base: Any = AutoHTTPProtocol
) -> type[asyncio.Protocol]:  # `base`: any of uvicorn's HTTP/1 protocols, which have no type in common
    """A subclass of uvicorn's protocol that closes a connection if no complete request head came in `seconds`.

    The time starts when the connection opens, and after a response with the next byte. An incomplete head is answered
    with 408 before the connection is closed.
    """

    class WithDeadline(base):  # type: ignore[misc]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._began = False
            self._deadline: asyncio.TimerHandle | None = None
            self._start_deadline()

        def data_received(self, data: bytes) -> None:
            self._began = True
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:  # a request is being answered
                self._cancel_deadline()
                self._began = False
            else:
                self._start_deadline()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel_deadline()
            super().connection_lost(exc)

        def _start_deadline(self) -> None:
            if self._deadline is None and not self.transport.is_closing():
                self._deadline = self.loop.call_later(seconds, self._too_slow)

        def _cancel_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _too_slow(self) -> None:
            self._deadline = None
            if self.transport.is_closing():
                return
            if self._began and self.cycle is None:
                self.transport.write(_timeout_response(seconds))
            self.transport.close()

    return WithDeadline


def _timeout_response(seconds: float) -> bytes:
    error = RequestTimeout(f"the request's head was not complete after {seconds:g} s: send it at once")
    body = ErrorResponse.of(error).body()
    head = (
        "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
