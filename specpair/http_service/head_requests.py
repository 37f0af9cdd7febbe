"""Middleware: HEAD works where GET does, and has the same headers."""

import asyncio
from collections.abc import Iterator

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specpair.http_service.replies.hang_up import HangUp


class HeadRequests:
    """Serves HEAD requests by another application, as GET requests whose reply is sent without its body.

    Once the head is sent, another application sees a client that has left, so that a stream without end ends.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        sent = asyncio.Event()
        body: Iterator[Message] = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                sent.set()

        async def receive_body() -> Message:
            if (message := next(body, None)) is not None:
                return message
            await sent.wait()
            return {"type": "http.disconnect"}

        async with HangUp(receive):
            await self._app({**scope, "method": "GET"}, receive_body, send_head)
