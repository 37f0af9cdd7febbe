"""Connections whose client has shut down its sending side, and waits for the reply: `nc -N` and `socat` do so.

To the server, such a client looks like one that has closed the connection altogether, and whose text should end. They
differ when something is sent: a client that is away refuses it. While a reply has not begun, interim responses (`100
Continue`, which clients skip) are sent from time to time, and within a stream of events two comments, which readers
skip; later the events themselves show it, and the comments that a silent stream has anyway.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    _Protocol = HttpToolsProtocol
else:
    _Protocol = object

PROBES = (1.0, 0.1)  # seconds to the first interim response, and to the second, by which the first was refused
LATER = 1.0  # seconds between further ones
_AT_ONCE = (0.0, 0.1)  # the same in a stream, whose reader is there or not
_MOST_COMMENTS = 2
_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
_COMMENT = b"3\r\n:\n\n\r\n"  # a chunk: event streams alone are sent in chunks here, and each chunk ends an event


class HalfClosedConnection(_Protocol):
    """One of uvicorn's protocols of HTTP/1, for clients that shut down their sending side. `guarded` mixes it in."""

    _probe: asyncio.TimerHandle | None = None
    _comments = 0  # that were sent for this

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection stays open: if a complete request has no complete reply yet."""
        super().eof_received()
        cycle: Any = self.cycle
        encrypted = self.transport.get_extra_info("sslcontext") is not None  # TLS has no half-closed connections
        if encrypted or cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False  # uvicorn closes the connection behind the last reply
        self._plan_probes(*(_AT_ONCE if cycle.response_started else PROBES))
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._probe is not None:
            self._probe.cancel()
        super().connection_lost(exc)

    def _plan_probes(self, seconds: float, *later: float) -> None:
        self._probe = self.loop.call_later(seconds, self._send_probe, *(later or (LATER,)))

    def _send_probe(self, *later: float) -> None:
        cycle: Any = self.cycle
        ahead: Any = getattr(self, "pipeline", None)  # h11's protocol takes no requests ahead
        if ahead or self.transport.is_closing():
            return
        probe: bytes | None = None
        if not cycle.response_started:
            probe = _INTERIM if self.scope["http_version"] == "1.1" else None
        elif not cycle.response_complete and getattr(cycle, "chunked_encoding", None):  # h11's protocol does not tell
            probe = _COMMENT
            self._comments += 1
        if probe is not None:
            self.transport.write(probe)
            if self._comments < _MOST_COMMENTS:
                self._plan_probes(*later)
