"""The socket of a connection, which counts every byte, framing included, and notices a peer that is gone."""

import io
import select
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from drafter_client.http.read_limit import ReadLimit

# Socket options, where the system has them, to notice a peer that is gone without closing: seconds of silence before
# the first probe, seconds between probes, number of probes; milliseconds until unacknowledged data count as lost.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPALIVE": 5, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 15_000}


@dataclass(slots=True)
class Traffic:
    """Bytes sent and received so far."""

    sent: int = 0
    received: int = 0


class CountedSocket:
    """The part of a connected socket that http.client uses, which counts bytes in `traffic`. With TLS it counts them
    unencrypted. `limit` counts what is received, and raises BadReply if that is too much.
    """

    def __init__(self, sock: socket.socket, traffic: Traffic, limit: ReadLimit) -> None:
        self._sock, self._traffic, self._limit = sock, traffic, limit

    def sendall(self, data: bytes) -> None:
        self._sock.sendall(data)
        self._traffic.sent += len(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_CountedReader(self._sock.makefile("rb", buffering=0), self._traffic, self._limit))

    def settimeout(self, seconds: float) -> None:
        self._sock.settimeout(seconds)

    def readable(self, seconds: float) -> bool:
        """Wait at most `seconds`; return whether there is something to read, the end of the stream or an error."""
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True
        if not hasattr(select, "poll"):  # Windows
            return bool(select.select([self._sock], [], [], seconds)[0])
        poll = select.poll()  # `select` takes no descriptors above 1,023
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(1e3 * seconds))

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def close(self) -> None:
        self._sock.close()


class _CountedReader(io.RawIOBase):
    """A socket's unbuffered reader, which counts the bytes that it reads."""

    def __init__(self, raw: socket.SocketIO, traffic: Traffic, limit: ReadLimit) -> None:
        self._raw, self._traffic, self._limit = raw, traffic, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._raw.readinto(buffer)
        self._traffic.received += count or 0
        self._limit.count(count or 0)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def keep_alive(sock: socket.socket) -> None:
    """Have the system notice within about 15 seconds that the peer is gone without closing."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):
            with suppress(OSError):  # a system may name an option and not support it
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
