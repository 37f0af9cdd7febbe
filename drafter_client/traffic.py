"""A socket that counts: what really went over the connection, framing included."""

import io
import socket
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Traffic:
    """Bytes so far, in both directions."""

    sent: int = 0
    received: int = 0


class CountedSocket:
    """The part of a connected socket that http.client uses, counting into `traffic`. With TLS: what is inside it."""

    def __init__(self, sock: socket.socket, traffic: Traffic) -> None:
        self._sock, self._traffic = sock, traffic

    def sendall(self, data: bytes) -> None:
        self._sock.sendall(data)
        self._traffic.sent += len(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_CountedReader(self._sock.makefile("rb", buffering=0), self._traffic))

    def settimeout(self, seconds: float) -> None:
        self._sock.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def close(self) -> None:
        self._sock.close()


class _CountedReader(io.RawIOBase):
    def __init__(self, raw: socket.SocketIO, traffic: Traffic) -> None:
        self._raw, self._traffic = raw, traffic

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._raw.readinto(buffer)
        self._traffic.received += count or 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
