"""A server in a thread, for tests that send it bytes."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from specpair.http_service.connection import Connection, ConnectionLimits, answered


def limited(limits: ConnectionLimits) -> type[Connection]:
    """Connections with other limits."""
    return type("Limited", (Connection,), {"limits": limits})


def config_of(app: Any, loop: str = "auto", http: type[Connection] = Connection, **more: Any) -> uvicorn.Config:
    """The configuration of a server for a bare ASGI application. `loop`: uvicorn's name; `more`: further settings."""

    async def answering(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        finally:
            answered(scope)

    more |= {"lifespan": "off", "log_config": None, "timeout_graceful_shutdown": 1}
    return uvicorn.Config(answering, http=http, loop=loop, **more)


@contextmanager
def serving(
    config: uvicorn.Config, make: Callable[[uvicorn.Config], uvicorn.Server] = uvicorn.Server
) -> Iterator[tuple[str, int]]:
    """A server in a thread. Yields its address."""
    server = make(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[:2]
        finally:
            server.should_exit = True
            thread.join()
