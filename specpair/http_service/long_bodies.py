"""Reads requests out of their bodies. Long ones take turns, so that they cost others little time and memory.

JSON of 4 MB takes Python up to a second, in which no other thread runs, and a hundred megabytes. So a limited number of
bytes of long bodies is held at once, and others wait unread; one thread beside the event loop reads them; a body with
more values than any request has is refused before; and memory that is free afterwards goes back to the system.
"""

import asyncio
import ctypes
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from starlette.requests import Request

from specpair.http_service.request_body import LONG, read_body
from specpair.protocol.errors import InvalidRequest, Overloaded

MOST_BYTES = 16 * 1024 * 1024  # of long bodies at once, or one body where the limit is larger
MOST_VALUES = 25_000  # of a body beside a prompt of token ids: more than any request that is taken has
WAIT = 30.0  # seconds for which a body may wait for others

M = TypeVar("M")


class RequestBodies:
    """Reads the requests of one service. Used in the event loop."""

    def __init__(self, limit: int, patience: float, context: Callable[[], int], wait: float = WAIT) -> None:
        """`limit`: bytes of a body.
        `patience`: seconds, as for `read_body`.
        `context`: tokens that the target's context holds.
        `wait`: seconds for which a long body may wait for others.
        """
        self._limit, self._patience, self._context, self._wait = limit, patience, context, wait
        self._room = Room(max(limit, MOST_BYTES))
        self._reader = ThreadPoolExecutor(1, "bodies")
        # glibc keeps what was freed; other libraries have no such function.
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None

    async def read(self, request: Request, parse: Callable[[bytes], M]) -> M:
        """What `parse` makes of the request's body.

        Raises what `parse` and `read_body` raise, InvalidRequest for too many values, and Overloaded if other long
        bodies have left no room.
        """
        taken = 0

        async def take(size: int) -> None:
            nonlocal taken
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
            most = MOST_VALUES + 2 * self._context()
            return await asyncio.get_running_loop().run_in_executor(self._reader, _parsed, body, parse, most)
        finally:
            if taken:
                self._room.give(taken)
                if self._room.empty and self._trim is not None:
                    self._reader.submit(self._trim, 0)


class Room:
    """So many bytes; those who find too few wait in order."""

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def empty(self) -> bool:
        """Whether nobody has any, or waits."""
        return self._free == self._size and not self._waiting

    async def take(self, size: int) -> None:
        """Take `size` bytes, which must be given back."""
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
        """Give `size` bytes back."""
        self._free += size
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            size, turn = self._waiting.popleft()
            self._free -= size
            turn.set_result(None)


def _parsed(body: bytes, parse: Callable[[bytes], M], most: int) -> M:
    if body.count(b",") > most and (found := values(body)) > most:  # to count those in strings, too, is cheaper
        raise InvalidRequest(f"the body has more than {found} values, at most {most} are read")
    return parse(body)


def values(body: bytes) -> int:
    """How many commas of JSON are not in strings."""
    text = np.frombuffer(body.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
    in_string = np.add.accumulate(text == ord('"'), dtype=np.uint8) & 1
    return int(np.count_nonzero((text == ord(",")) & (in_string == 0)))
