"""Connections that send no complete request head in time are closed. For the server of the `verifier` command.

uvicorn bounds how long a connection may be idle between two requests, but neither how long the first may take to begin
nor how long a head may take.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from speculation.errors import RequestTimeout
from verifier_server.api.server_sent_events import encode


def with_head_deadline(
    seconds: float, base: Any = AutoHTTPProtocol
) -> type[asyncio.Protocol]:  # `base`: any of uvicorn's HTTP/1 protocols, which have no type in common
    """uvicorn's protocol, but that a connection is closed on which no head is complete after so many seconds.

    They count from the connection's beginning, and behind an answer from the next byte. A head that was begun is
    answered with 408 first.
    """

    class Prompt(base):  # type: ignore[misc]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._began = False
            self._head: asyncio.TimerHandle | None = None
            self._await_head()

        def data_received(self, data: bytes) -> None:
            self._began = True
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:  # a request is being answered
                self._head_over()
                self._began = False
            else:
                self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_over()
            super().connection_lost(exc)

        def _await_head(self) -> None:
            if self._head is None and not self.transport.is_closing():
                self._head = self.loop.call_later(seconds, self._too_slow)

        def _head_over(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

        def _too_slow(self) -> None:
            self._head = None
            if self.transport.is_closing():
                return
            if self._began and self.cycle is None:
                self.transport.write(_answer(seconds))
            self.transport.close()

    return Prompt


def _answer(seconds: float) -> bytes:
    error = RequestTimeout(f"the request's head was not complete after {seconds:g} s: send it at once")
    body = encode(error.body()).encode()
    head = (
        "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
