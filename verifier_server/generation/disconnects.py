"""Detects that a client has closed its connection while it waits for its answer."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import Receive

from speculation.errors import InvalidRequest

_PATIENCE = 0.25  # seconds; nearly all answers come sooner, and watching a connection costs more than answering


@contextmanager
def watched(receive: Receive, on_disconnect: Callable[[], None]) -> Iterator[None]:
    """While the block runs, call `on_disconnect` once `receive` says that the client disconnected.

    The request's body must have been read before. The connection is watched only after `_PATIENCE`.
    """
    loop = asyncio.get_running_loop()
    task: asyncio.Task[None] | None = None

    async def listen() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        on_disconnect()

    def watch() -> None:
        nonlocal task
        task = loop.create_task(listen())

    timer = loop.call_later(_PATIENCE, watch)
    try:
        yield
    finally:
        timer.cancel()
        if task is not None:
            task.cancel()


def disconnected() -> InvalidRequest:
    """The error of a request whose client has disconnected."""
    return InvalidRequest("the connection was closed before the answer came")
