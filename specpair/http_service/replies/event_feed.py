"""What happens in a service, for pages that listen; without one, nothing is made or kept."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from specpair.protocol.errors import Overloaded

T = TypeVar("T")

MOST_READERS = 16
MOST_WAITING = 512  # items for one reader; beyond that, the oldest are dropped


class EventFeed(Generic[T]):
    """Hands what happens to its readers. Thread-safe, but for the readers."""

    def __init__(self) -> None:
        self._readers_lock = threading.Lock()
        self._readers: tuple[FeedReader[T], ...] = ()
        self._closed = False

    @property
    def heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._readers)

    def put(self, item: T) -> None:
        """Hand an item to the readers. May be called from any thread; returns at once."""
        for reader in self._readers:
            reader.put(item)

    @contextmanager
    def heard_by(self, reader: "FeedReader[T]") -> Iterator[None]:
        """While the block runs, `reader` gets what happens. Raises Overloaded beyond `MOST_READERS`."""
        with self._readers_lock:
            if len(self._readers) >= MOST_READERS:
                raise Overloaded(f"{MOST_READERS} pages listen already: close one", retry_after=10)
            self._readers = (*self._readers, reader)
            if self._closed:
                reader.close()
        try:
            yield
        finally:
            with self._readers_lock:
                self._readers = tuple(each for each in self._readers if each is not reader)

    def close(self) -> None:
        """End all readers, as the service stops. May be called again."""
        with self._readers_lock:
            self._closed = True
            for reader in self._readers:
                reader.close()


class FeedReader(Generic[T]):
    """What happens, for one page. Made and read in an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[T] = deque(maxlen=MOST_WAITING)  # whose methods are atomic
        self._came, self._ended = asyncio.Event(), asyncio.Event()
        self.closed = False

    def put(self, item: T) -> None:
        """Add an item. May be called from any thread."""
        first = not self._waiting
        self._waiting.append(item)
        if first:  # else it has been woken
            self._wake()

    def close(self) -> None:
        """End it. May be called from any thread."""
        self.closed = True
        self._wake()
        self._soon(self._ended.set)

    async def rest(self, seconds: float) -> None:
        """Let more come for `seconds`. Returns at once when it is closed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    async def next(self, seconds: float) -> list[T]:
        """All that has come, after at most `seconds` of silence, then nothing."""
        try:
            await asyncio.wait_for(self._came.wait(), seconds)
        except TimeoutError:
            return []
        self._came.clear()
        found = list[T]()
        while self._waiting:
            found.append(self._waiting.popleft())
        return found

    def _wake(self) -> None:
        self._soon(self._came.set)

    def _soon(self, call: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)
