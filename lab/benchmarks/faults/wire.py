"""HTTP by hand, for many clients that break connections anywhere: a tenth of the processor time of a client library."""

import asyncio
import json
import re
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

PATIENCE = 60.0  # seconds without a byte after which a server counts as hung


class Wire:
    """One connection. Raises TimeoutError where the server is silent for `PATIENCE` seconds."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def ask(self, request: bytes) -> tuple[int, Any]:
        """Send a request. Returns the response's status and its JSON, None for a stream: `events` reads that."""
        await self.send(request)
        async with asyncio.timeout(PATIENCE):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("ascii").lower()
            length = re.search(r"content-length: (\d+)", head)
            body = None if length is None else json.loads(await self._reader.readexactly(int(length[1])))
        return int(head.split()[1]), body

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
        """Have the connection end as with the crash of a machine: with a reset."""
        if not self._writer.is_closing():  # else the server closed it first
            linger = struct.pack("ii", 1, 0)
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


@asynccontextmanager
async def connected(address: tuple[str, int]) -> AsyncIterator[Wire]:
    """A connection, which ends with the block as it does with a process."""
    reader, writer = await asyncio.open_connection(*address, limit=2**20)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()


def request(method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> bytes:
    """A request as bytes; `body` is sent as JSON unless it is None."""
    content = b"" if body is None else json.dumps(body).encode()
    given = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": len(content), **(headers or {})}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    return "\r\n".join(lines).encode("ascii") + content
