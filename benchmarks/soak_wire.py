"""HTTP by hand, for clients that misbehave: requests cut anywhere, sockets reset, streams left in the middle."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

PATIENCE = 60.0  # seconds without a byte after which a verifier counts as hung


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its status, whether the connection ends with it, its JSON."""

    status: int
    last: bool
    body: Any

    @property
    def code(self) -> str | None:
        """The error's name; None for a success."""
        return None if self.status == 200 else str(self.body["error"]["code"])


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, address: tuple[str, int], buffer: int | None = None) -> "Wire":
        """Connect; `buffer`: bytes that the system takes in for a slow reader."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        if buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        try:
            await asyncio.get_running_loop().sock_connect(sock, address)
            return cls(*await asyncio.open_connection(sock=sock, limit=2**20 if buffer is None else 2**12))
        except BaseException:
            sock.close()
            raise

    async def ask(self, request: bytes) -> Reply:
        """Send a request and read its whole answer."""
        await self.send(request)
        return await self.answer()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> Reply:
        """The answer to the oldest request that has had none."""
        status, headers = await self.head()
        return await self.rest(status, headers)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of an answer."""
        async with asyncio.timeout(PATIENCE):
            first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("ascii").splitlines()
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        return int(first.split()[1]), headers

    async def rest(self, status: int, headers: dict[str, str]) -> Reply:
        """What follows the head of an answer that is no stream."""
        async with asyncio.timeout(PATIENCE):
            body = await self._reader.readexactly(int(headers["content-length"]))
        return Reply(status, headers.get("connection") == "close", json.loads(body))

    async def events(self) -> AsyncIterator[tuple[str, Any]]:
        """Server-sent events behind a head; comments as ("", None)."""
        kept = b""
        while data := await self._chunk():
            *whole, kept = (kept + data).split(b"\n\n")
            for lines in whole:
                if lines.startswith(b":"):
                    yield "", None
                else:
                    name, _, body = lines.partition(b"\ndata: ")
                    yield name.removeprefix(b"event: ").decode(), json.loads(body)

    async def _chunk(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            return (await self._reader.readexactly(size + 2))[:-2]

    async def some(self) -> bytes:
        """Whatever comes next."""
        async with asyncio.timeout(PATIENCE):
            return await self._reader.read(64)

    def reset(self) -> None:
        """End the connection as the crash of a machine does: at once, without a goodbye."""
        if not self._writer.is_closing():  # else the verifier was first
            linger = struct.pack("ii", 1, 0)
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort()

    def hang_up(self) -> None:
        """End the connection as the end of a process does."""
        self._writer.transport.abort()


def request(method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
    """A request as bytes."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: soak",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "\r\n"]).encode("ascii") + (body or b"")
