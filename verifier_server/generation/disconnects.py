"""Detects that a client has closed its connection while it waits for its answer."""

import asyncio
from collections.abc import Callable
from types import TracebackType

from starlette.types import Receive

from speculation.errors import InvalidRequest

_INTERVAL = 0.25  # seconds; nearly all answers come sooner, and watching a connection costs more than answering


class DisconnectWatcher:
    """Watches the connections of requests that have waited for a while. Used by the event loop's thread only.

    Requests have no timers of their own: one timer checks all of them, every `_INTERVAL` seconds.
    """

    def __init__(self) -> None:
        self._new: set[WatchedRequest] = set()  # added since the last check
        self._running = False  # whether the timer is running

    def add(self, waiting: "WatchedRequest") -> None:
        """Watch the connection of `waiting` if it still has no answer at the second check from now."""
        self._new.add(waiting)
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_later(_INTERVAL, self._check, set())

    def discard(self, waiting: "WatchedRequest") -> None:
        """Forget `waiting`, which was answered, if its connection is not watched yet."""
        self._new.discard(waiting)

    def _check(self, before: "set[WatchedRequest]") -> None:
        """Watch the connections of `before`, the requests added before the last check."""
        for waiting in before:
            waiting.watch()
        new, self._new = self._new, set()
        self._running = bool(new)
        if new:
            asyncio.get_running_loop().call_later(_INTERVAL, self._check, new)


class WatchedRequest:
    """While a `with` block of it runs, calls `on_disconnect` once `receive` says that the client disconnected.

    The request's body must have been read before.
    """

    __slots__ = ("_on_disconnect", "_open", "_receive", "_task", "_watcher")

    def __init__(self, watcher: DisconnectWatcher, receive: Receive, on_disconnect: Callable[[], None]) -> None:
        self._watcher, self._receive, self._on_disconnect = watcher, receive, on_disconnect
        self._open = True
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> "WatchedRequest":
        self._watcher.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self._watcher.discard(self)
        if self._task is not None:
            self._task.cancel()

    def watch(self) -> None:
        """Listen for the end of the connection, unless the answer was given."""
        if self._open:
            self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._on_disconnect()


def disconnected() -> InvalidRequest:
    """The error of a request whose client has disconnected."""
    return InvalidRequest("the connection was closed before the answer came")
