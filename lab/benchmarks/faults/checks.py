"""Code that the fault tests share: complete streams, resources of processes (needs /proc), and raw HTTP."""

import asyncio
import json
import re
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

# How much a process that lives through all of it may hold more at rest than when the first texts were written.
FILES, THREADS, MEMORY = 8, 8, 48.0  # the last one in MiB
NO_END = "the stream ended without [DONE]"


def completion(lines: Iterable[str]) -> tuple[str, str | None]:
    """The received text of a stream of `/v1/completions`, and why it is incomplete; None: it is complete."""
    text, ended = "", False
    try:
        for line in lines:
            if line == "data: [DONE]":
                return text, None if ended else "[DONE] came before the end"
            if line.startswith("data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    return text, line
                text += "".join(each["text"] for each in event["choices"])
                ended = ended or any(each["finish_reason"] for each in event["choices"])
    except httpx.TransportError as error:
        return text, repr(error)
    return text, NO_END


class Held(NamedTuple):
    """The resources that a process holds."""

    files: int
    threads: int
    memory: float  # MiB

    @classmethod
    def by(cls, pid: int) -> "Held":
        folder = Path("/proc") / str(pid)
        [line] = [line for line in (folder / "status").read_text().splitlines() if line.startswith("VmRSS:")]
        files, threads = (sum(1 for _ in (folder / name).iterdir()) for name in ("fd", "task"))
        return cls(files, threads, int(line.split()[1]) / 1024)

    def more_than(self, before: "Held") -> dict[str, float]:
        """The resources that exceed `before` by more than the bounds."""
        over = {
            "files": self.files - before.files - FILES,
            "threads": self.threads - before.threads - THREADS,
            "MiB": self.memory - before.memory - MEMORY,
        }
        return {name: count for name, count in over.items() if count > 0}


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    """Wait; whether the condition holds within the seconds."""
    patience, pause = time.monotonic() + seconds, threading.Event()
    while not done():
        if time.monotonic() > patience:
            return False
        pause.wait(0.2)
    return True


PATIENCE = 60.0  # seconds without a byte after which a server counts as hung


class Wire:
    """One connection of a client that may break it anywhere, at a tenth of the processor time of a client library.

    Raises TimeoutError where the server is silent for `PATIENCE` seconds.
    """

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
        """End the connection with a reset, as a crashing machine does."""
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
