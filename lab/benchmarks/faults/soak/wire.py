"""HTTP by hand over asyncio, for clients that break connections anywhere."""

import asyncio
import json
import re
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

PATIENCE = 60.0  # seconds without a byte after which a server counts as hung


@dataclass(frozen=True, slots=True)
class Reply:
    """A response: its status and its JSON, None for a stream."""

    status: int
    body: Any

    @property
    def code(self) -> str | None:
        """The error's code; None for a success."""
        return None if self.status == 200 else str(self.body["error"]["code"])


class Wire:
    """One connection. Raises TimeoutError where the server is silent for `PATIENCE` seconds."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, address: tuple[str, int]) -> "Wire":
        return cls(*await asyncio.open_connection(*address, limit=2**20))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def ask(self, request: bytes) -> Reply:
        """Send a request and read its response, but for the body of a stream: `events` reads that."""
        await self.send(request)
        async with asyncio.timeout(PATIENCE):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("ascii").lower()
            length = re.search(r"content-length: (\d+)", head)
            body = None if length is None else json.loads(await self._reader.readexactly(int(length[1])))
        return Reply(int(head.split()[1]), body)

    async def events(self) -> AsyncIterator[tuple[str, Any]]:
        """Server-sent events, by name and JSON data; comments and the sizes of chunks, lines as well, are left out."""
        name, line = "", b"any"
        while line:
            async with asyncio.timeout(PATIENCE):
                line = await self._reader.readline()
            field, _, value = line.decode().rstrip().partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield name, json.loads(value)

    def reset(self) -> None:
        """End the connection as the crash of a machine does: with a reset."""
        if not self._writer.is_closing():  # else the server closed it first
            linger = struct.pack("ii", 1, 0)
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort()

    def close(self) -> None:
        """End the connection as the end of a process does."""
        self._writer.transport.abort()


def request(method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> bytes:
    """A request as bytes; `body` is sent as JSON unless it is None."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, f"Content-Length: {len(content)}", "\r\n"]).encode("ascii") + content
