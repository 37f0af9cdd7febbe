"""Middleware: HEAD works where GET does, and has the same headers."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadRequests:
    """Serves HEAD requests by another application, as GET requests whose reply is sent without its body.

    Another application sees a client that is away, so that a stream without end ends at once.
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

        await self._app({**scope, "method": "GET"}, _away, send_head)


async def _away() -> Message:
    return {"type": "http.disconnect"}
