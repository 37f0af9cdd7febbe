"""Sends a node's reply to the client, each piece of it as it comes."""

from starlette.types import Send

from gateway.router.passing.headers import to_client, value_of
from gateway.router.passing.whole_events import WholeEvents
from gateway.router.upstream.connection import NodeConnection
from specpair.http_service.openapi.operation import ErrorForm
from specpair.protocol.errors import SpecPairError
from specpair.protocol.http_reply import ReplyHead


class Sending:
    """The reply to one request."""

    def __init__(self, send: Send, form: ErrorForm) -> None:
        """`form`: how errors are reported to this request."""
        self._send, self._form = send, form
        self._events: WholeEvents | None = None  # of a reply that is a stream of them

    async def send(self, head: ReplyHead, body: bytes) -> None:
        """Send a reply whose body is there."""
        await self._begin(head)
        await self._send({"type": "http.response.body", "body": body})

    async def pass_on(self, head: ReplyHead, connection: NodeConnection) -> None:
        """Send a reply whose body is still to be read. Raises NodeLost."""
        await self._begin(head)
        if _is_event_stream(head):
            self._events = WholeEvents()
        last = False
        while not last:
            body, last = await connection.read()
            if self._events is not None:
                body = self._events.take(body, last)
            if body or last:
                await self._send({"type": "http.response.body", "body": body, "more_body": not last})

    async def end_with(self, error: SpecPairError) -> bool:
        """End the reply with the event of an error. Returns whether that is possible: it is a stream of events."""
        if self._events is None:
            return False
        event = self._form.last_event(error, self._events.named)
        await self._send({"type": "http.response.body", "body": event})
        return True

    async def _begin(self, head: ReplyHead) -> None:
        await self._send({"type": "http.response.start", "status": head.status, "headers": to_client(head)})


def _is_event_stream(head: ReplyHead) -> bool:
    """Whether a reply is a stream of events to whose end another one can be put."""
    names = {name for name, _ in head.headers}
    plain = not names & {b"content-length", b"content-encoding"}
    return plain and value_of(head.headers, b"content-type").startswith("text/event-stream")
