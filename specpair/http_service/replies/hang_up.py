"""Cancels the work on a request whose client hangs up. All code that waits for a client uses this module.

Whatever the work waits for, such as a pass, a slot, its turn in a queue, or another machine, it only has to give that
back when it is cancelled.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive

from specpair.http_service.request_bodies import PARSED

PATIENCE = 0.25  # seconds; most replies come sooner, and listening to a connection costs more than a verify request
_NOBODY_READS_IT = 499  # status, as nginx logs it


class HangUp:
    """Cancels the block of `async with` once its client hangs up. The code behind the block still runs.

    `happened`: whether the client hung up.
    """

    def __init__(self, receive: Receive, *, body: bool = False) -> None:
        """`body`: whether the block reads the request's body, by `receive` of this object: it listens after that."""
        self._receive, self._body = receive, body
        self.happened = False
        self._timer: asyncio.TimerHandle | None = None
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._before = task, task.cancelling()
        if not self._body:
            self._plan()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        if self._listening is not None:
            self._listening.cancel()
        only_cancelled_here = self.happened and self._task.uncancel() <= self._before
        return only_cancelled_here and kind is asyncio.CancelledError

    async def receive(self) -> Message:
        """The next message for the reader of the body."""
        message = await self._receive()
        if self._timer is None and not message.get("more_body", False):
            self._plan()
        return message

    def _plan(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._begin)

    def _begin(self) -> None:
        self._listening = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.happened = True
        self._task.cancel()


async def unless_hung_up(endpoint: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
    """The reply of `endpoint`, which is cancelled if the client hangs up before."""
    async with HangUp(request.receive, body=PARSED not in request.scope) as hang_up:
        return await endpoint(Request(request.scope, hang_up.receive))
    return Response(status_code=_NOBODY_READS_IT)
