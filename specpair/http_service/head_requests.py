"""Middleware: HEAD works where GET does, and has the same headers."""

import asyncio
from collections.abc import Iterator

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specpair.http_service.replies.event_stream import unless_disconnected


class HeadRequests:
    """Serves HEAD requests by another application, as GET requests whose reply is sent without its body.

    Another application is cancelled once the head is sent, so that a stream without end ends at once.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        body: Iterator[Message] = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive_body() -> Message:
            return next(body, None) or await asyncio.get_running_loop().create_future()

        await unless_disconnected(self._app({**scope, "method": "GET"}, receive_body, send_head), receive)
