"""A socket that counts: what really went over the connection, framing included."""

import io
import socket
from dataclasses import dataclass
from typing import Any

from drafter_client.read_limit import ReadLimit


@dataclass(slots=True)
class Traffic:
    """Bytes so far, in both directions."""

    sent: int = 0
    received: int = 0


class CountedSocket:
    """The part of a connected socket that http.client uses, counting into `traffic`. With TLS: what is inside it.

    `limit` hears of all that comes, and may refuse it.
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

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def close(self) -> None:
        self._sock.close()


class _CountedReader(io.RawIOBase):
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
