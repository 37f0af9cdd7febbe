"""Noticing that a client has hung up while it waits for its answer."""

import asyncio
from collections.abc import Callable
from types import TracebackType

from starlette.types import Receive

from speculation.errors import InvalidRequest

_PATIENCE = 0.25  # seconds; nearly all answers come sooner, and watching a connection costs more than they do


class DisconnectWatcher:
    """Watches the connections of clients that have waited for a while. Used by the event loop's thread only.

    No client has a timer of its own: all that wait are looked through every `_PATIENCE` seconds.
    """

    def __init__(self) -> None:
        self._new: set[WatchedRequest] = set()  # since the last look
        self._looking = False

    def add(self, waiting: "WatchedRequest") -> None:
        """Watch the connection if `waiting` is still open by the next look but one."""
        self._new.add(waiting)
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(_PATIENCE, self._look, set())

    def discard(self, waiting: "WatchedRequest") -> None:
        """Watch it no more."""
        self._new.discard(waiting)

    def _look(self, before: "set[WatchedRequest]") -> None:
        for waiting in before:
            waiting.watch()
        new, self._new = self._new, set()
        self._looking = bool(new)
        if new:
            asyncio.get_running_loop().call_later(_PATIENCE, self._look, new)


class WatchedRequest:
    """Within `with Waiting(…)`, `left` is called once the client has closed its connection, as `receive` tells.

    The request's body was read before.
    """

    __slots__ = ("_departures", "_left", "_open", "_receive", "_task")

    def __init__(self, departures: DisconnectWatcher, receive: Receive, left: Callable[[], None]) -> None:
        self._departures, self._receive, self._left = departures, receive, left
        self._open = True
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> "WatchedRequest":
        self._departures.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self._departures.discard(self)
        if self._task is not None:
            self._task.cancel()

    def watch(self) -> None:
        """Listen to the connection, unless the answer has come."""
        if self._open:
            self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left()


def hung_up() -> InvalidRequest:
    """What becomes of a request whose client has left."""
    return InvalidRequest("the connection was closed before the answer came")
