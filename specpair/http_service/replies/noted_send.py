"""Notes whether a reply has begun: after that, an error cannot become one."""

from starlette.types import Message, Send


class NotedSend:
    """An ASGI `send`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def __call__(self, message: Message) -> None:
        self.begun = True
        await self._send(message)
