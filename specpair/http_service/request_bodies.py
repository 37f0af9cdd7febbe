"""Reads request bodies, with limits on the size, also when unpacked, and on the time.

Long bodies take turns, so that they cost others little time and memory.
JSON of 4 MB takes Python up to a second, in which no other thread runs, and a hundred megabytes. So a limited number of
bytes of long bodies is held at once, and others wait unread; one thread beside the event loop reads them; a body with
more values than any request has is refused before; and memory that is free afterwards goes back to the system.
"""

import asyncio
import ctypes
import sys
import zlib
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import TypeVar, cast

import numpy as np
from starlette.requests import Request

from specpair.http_service.connection import connection_of
from specpair.protocol.errors import BodyTooLarge, InvalidRequest, Overloaded, RequestTimeout, UnsupportedEncoding
from specpair.protocol.terminal_text import one_line

_WINDOW_BITS = {"gzip": (31,), "x-gzip": (31,), "deflate": (15, -15)}  # zlib's; deflate has a header, or none
LONG = 64 * 1024  # bytes of a body that costs others noticeable time and memory
SLOWEST = 32 * 1024  # bytes per second, at least, of a body that takes longer than `patience`
MOST_BYTES = 16 * 1024 * 1024  # of long bodies at once, or one body where the limit is larger
MOST_VALUES = 25_000  # of a body beside a prompt of token ids: more than any request that is taken has
WAIT = 30.0  # seconds for which a body may wait for others
PARSED = "specpair.parsed"  # key of the scope: the body, which another process has read
M = TypeVar("M")


async def _goes_on(_size: int) -> None:
    """A long body is read at once."""


async def read_body(
    request: Request,
    limit: int,
    patience: float,
    before_long: Callable[[int], Awaitable[None]] = _goes_on,
) -> bytes:
    """Read the body of a request, and unpack it if it is compressed.

    It may have up to `limit` bytes, sent and unpacked. `before_long` is called with the size that a body may have,
    before more than `LONG` bytes of it are read, and before it is unpacked. Raises what it raises, what `received_body`
    and `unpacked` raise, and UnsupportedEncoding.
    """
    encoding = encoding_of(request)
    body = await received_body(
        request, limit, patience, lambda declared: before_long(limit if encoding or not declared else declared)
    )
    if not encoding:
        return body
    await before_long(limit)
    return await asyncio.to_thread(unpacked, body, encoding, limit)


def encoding_of(request: Request) -> str:
    """The compression of a request's body; empty: none. Raises UnsupportedEncoding."""
    encoding = ", ".join(request.headers.getlist("content-encoding")).strip().lower()
    if encoding not in ("", "identity", *_WINDOW_BITS):
        raise UnsupportedEncoding(
            f"Content-Encoding: {one_line(encoding[:80])!r} is not read here: send gzip, deflate, or the body as it is"
        )
    return encoding if encoding in _WINDOW_BITS else ""


async def received_body(
    request: Request, limit: int, patience: float, before_long: Callable[[int], Awaitable[None]] = _goes_on
) -> bytes:
    """The body of a request as it was sent, of up to `limit` bytes.

    It may take up to `patience` seconds plus one for each `SLOWEST` bytes. `before_long` is called with the length that
    the request declares (0: none), before more than `LONG` bytes are read. Raises what it raises, BodyTooLarge,
    RequestTimeout, and InvalidRequest if the connection was closed before the body was complete.
    """
    header = request.headers.get("content-length", "")
    declared = int(header) if header.isdigit() else 0
    if declared > limit:
        raise BodyTooLarge(f"the body has {declared} bytes, this server takes at most {limit}", limit=limit)
    body, more, is_long, waited = bytearray(), True, False, 0.0
    loop = asyncio.get_running_loop()
    began = loop.time()
    connection = connection_of(request.scope)
    whole = connection is not None and connection.has_whole_request  # as most are: a timer costs more than the rest
    try:
        async with asyncio.timeout(None if whole else patience) as deadline:
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":  # a client's fault, so not logged
                    raise InvalidRequest("the connection was closed before the body was complete")
                body += message.get("body", b"")
                if len(body) > limit:
                    raise BodyTooLarge(f"the body is larger than the {limit} bytes this server takes", limit=limit)
                more = message.get("more_body", False)
                if not is_long and len(body) > LONG:
                    deadline.reschedule(None)
                    wait_began = loop.time()
                    await before_long(declared)
                    is_long, waited = True, loop.time() - wait_began
                if more:
                    deadline.reschedule(began + waited + patience + len(body) / SLOWEST)
    except TimeoutError:
        raise RequestTimeout(
            f"the body was not complete after {loop.time() - began:.1f} s ({len(body)} bytes had come): send it in "
            f"{patience:g} s, or at {SLOWEST / 1024:g} KiB a second"
        ) from None
    return bytes(body)


def unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    """The decompressed body, without ever holding more than `limit` bytes.

    Raises BodyTooLarge, and InvalidRequest for a body that is broken or not complete.
    """
    for bits in _WINDOW_BITS[encoding]:
        unpacker, found = zlib.decompressobj(bits), b""
        with suppress(zlib.error):
            found = unpacker.decompress(body, limit + 1)
        if len(found) > limit:
            raise BodyTooLarge(f"the body, unpacked, is larger than the {limit} bytes this server takes", limit=limit)
        if unpacker.eof and not unpacker.unused_data:
            return found
    raise InvalidRequest(f"the body is not what Content-Encoding says: it cannot be read as {encoding}")


class RequestBodies:
    """Reads the requests of one service. Used in the event loop."""

    def __init__(self, limit: int, patience: float, context: Callable[[], int], wait: float = WAIT) -> None:
        """`limit`: bytes of a body.
        `patience`: seconds, as for `read_body`.
        `context`: tokens that the target's context holds.
        `wait`: seconds for which a long body may wait for others.
        """
        self._limit, self._patience, self._context, self._wait = limit, patience, context, wait
        self._room = ByteBudget(max(limit, MOST_BYTES))
        self._reader = ThreadPoolExecutor(1, "bodies")
        # glibc keeps what was freed; other libraries have no such function.
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None

    async def read(self, request: Request, parse: Callable[[bytes], M]) -> M:
        """The result of `parse` for the request's body; what another process has read, if one has.

        Raises what `parse` and `read_body` raise, InvalidRequest for too many values, and Overloaded if other long
        bodies have left no room.
        """
        if (parsed := request.scope.get(PARSED)) is not None:
            return cast(M, parsed)
        taken = 0

        async def take(size: int) -> None:
            nonlocal taken
            if taken:
                return
            try:
                async with asyncio.timeout(self._wait):
                    await self._room.take(size)
            except TimeoutError:
                raise Overloaded(
                    f"other long bodies are being read: this one has waited {self._wait:g} s", retry_after=5
                ) from None
            taken = size

        try:
            body = await read_body(request, self._limit, self._patience, before_long=take)
            if len(body) <= LONG:
                return parse(body)
            within = copy_context().run  # the request's hints are collected there
            return await asyncio.get_running_loop().run_in_executor(self._reader, within, self._parsed, body, parse)
        finally:
            if taken:
                self._room.give(taken)
                if self._room.empty and self._trim is not None:
                    self._reader.submit(self._trim, 0)

    def _parsed(self, body: bytes, parse: Callable[[bytes], M]) -> M:
        most = MOST_VALUES + 2 * self._context()
        if body.count(b",") > most and (found := values(body)) > most:  # to count those in strings, too, is cheaper
            raise InvalidRequest(f"the body has more than {found} values, at most {most} are read")
        return parse(body)


class ByteBudget:
    """A budget of bytes; callers that find too few wait in order."""

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def empty(self) -> bool:
        """Whether all bytes are free and nobody waits."""
        return self._free == self._size and not self._waiting

    async def take(self, size: int) -> None:
        """Take `size` bytes, which the caller must give back."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove((size, turn))
                self._admit()
            else:
                self.give(size)
            raise

    def give(self, size: int) -> None:
        self._free += size
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            size, turn = self._waiting.popleft()
            self._free -= size
            turn.set_result(None)


def values(body: bytes) -> int:
    """The number of commas outside of JSON strings."""
    text = np.frombuffer(body.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
    in_string = np.add.accumulate(text == ord('"'), dtype=np.uint8) & 1
    return int(np.count_nonzero((text == ord(",")) & (in_string == 0)))
