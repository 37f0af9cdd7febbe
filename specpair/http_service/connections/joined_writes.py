"""A connection's transport that sends a response's head and the first bytes of its body together.

uvicorn writes them one after the other, and its loops send each at once: two packets, two system calls, and a client
that wakes up twice.
"""

import asyncio
from collections.abc import Callable
from typing import Any

_HEAD = b"HTTP/"  # how one begins. A body's part that begins so, behind other parts, is held in vain.


class JoinedWrites:
    """The transport of a connection, which holds a head: until the next write, or the event loop's next turn. All else
    is sent at once."""

    def __init__(self, transport: asyncio.Transport, call_soon: Callable[[Callable[[], object]], object]) -> None:
        """`call_soon`: the event loop's."""
        self._transport, self._call_soon = transport, call_soon
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(_HEAD):
            self._held = data
            self._call_soon(self.send_held)
            return
        self._transport.write(data)

    def close(self) -> None:
        self.send_held()
        self._transport.close()

    def send_held(self) -> None:
        """To be called where the transport may close by itself: behind the end of what the client sends."""
        data, self._held = self._held, b""
        if data and not self._transport.is_closing():  # uvloop's raises an error where the client is away
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
