"""Server-sent events as a reply, which ends as soon as its reader hangs up."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from types import MappingProxyType

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from specpair.http_service.replies.hang_up import HangUp

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # a buffering proxy would delay tokens
HEARTBEAT = 3.0  # seconds of silence before a comment shows that the connection is alive; clients wait for 10


class EventStream(Response):
    """Sends the events of an iterator. The iterator is closed when its reader hangs up, also while it is silent."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[bytes],
        headers: Mapping[str, str] = MappingProxyType({}),
        held: AbstractContextManager[object] | None = None,
    ) -> None:
        """`held`: entered before the reply begins, so that its errors are one, and left behind the events."""
        self.status_code, self.background = 200, None
        self.init_headers({**_HEADERS, **headers})
        self._events, self._held = events, held or nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with HangUp(receive):
                await self._send(send)

    async def _send(self, send: Send) -> None:
        async with aclosing(self._events) as events:  # type: ignore[type-var]  # it is a generator
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
