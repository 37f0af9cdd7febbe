"""Connections whose client has shut down its sending side, and waits for the reply: `nc -N` and `socat` do so.

To the server, such a client looks like one that has closed the connection altogether, and whose text should end. They
differ when something is sent: a client that is away refuses it. So a client is seen to be away while its reply is sent.
While a reply has not begun, interim responses (`100 Continue`, which clients skip) are sent from time to time.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    _Protocol = HttpToolsProtocol
else:
    _Protocol = object

PROBES = (1.0, 0.1)  # seconds to the first interim response, and to the second, by which the first was refused
_LATER = 1.0  # seconds between further ones
_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


class HalfClosedConnection(_Protocol):
    """One of uvicorn's protocols of HTTP/1, for clients that shut down their sending side. `guarded` mixes it in."""

    _probe: asyncio.TimerHandle | None = None

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection stays open: if a complete request has no complete reply yet."""
        super().eof_received()
        cycle: Any = self.cycle
        encrypted = self.transport.get_extra_info("sslcontext") is not None  # TLS has no half-closed connections
        if encrypted or cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False  # uvicorn closes the connection behind the last reply
        self._plan_probes(*PROBES)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._probe is not None:
            self._probe.cancel()
        super().connection_lost(exc)

    def _plan_probes(self, seconds: float, *later: float) -> None:
        self._probe = self.loop.call_later(seconds, self._send_probe, *(later or (_LATER,)))

    def _send_probe(self, *later: float) -> None:
        cycle: Any = self.cycle
        begun = cycle.response_started or getattr(self, "pipeline", ())  # h11's protocol takes no requests ahead
        if not begun and self.scope["http_version"] == "1.1" and not self.transport.is_closing():
            self.transport.write(_INTERIM)
            self._plan_probes(*later)
