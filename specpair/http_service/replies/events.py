"""Server-sent events: as bytes, and as a reply that ends as soon as its reader hangs up."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from specpair.http_service.replies.hang_up import HangUp
from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.terminal_text import one_line

COMMENT = b":\n\n"
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # a buffering proxy would delay tokens
HEARTBEAT = 3.0  # seconds of silence before a comment shows that the connection is alive; clients wait for 10


def event_bytes(data: bytes, name: str = "") -> bytes:
    """The bytes of an event. `data`: one line; `name`: empty for none."""
    return (b"event: %s\n" % name.encode() if name else b"") + b"data: %s\n\n" % data


def comment(progress: PromptProgress | None, away: str = "") -> bytes:
    """A comment for a reader that hears nothing else.

    `progress`: of the prompt that is being read, if one is.
    `away`: what is waited for beyond the service, if something is.
    """
    if away:
        return b": %s\n\n" % one_line(away).encode()
    return COMMENT if progress is None else progress.comment()


class EventMessage(BaseModel):
    """A message, or a part of one."""

    model_config = ConfigDict(frozen=True)


def message_event(message: BaseModel, name: str) -> bytes:
    """The bytes of the event of this name that has the message as its data."""
    return event_bytes(message.model_dump_json().encode(), name)


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
