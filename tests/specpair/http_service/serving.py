"""A server in a thread, for tests that send it bytes."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from specpair.http_service.connections.guarded import Limits, guarded


def guarded_config(app: Any, parser: str, loop: str = "auto") -> uvicorn.Config:
    """The configuration of a server whose connections have limits. `parser`, `loop`: uvicorn's names."""
    config = uvicorn.Config(app, http=parser, loop=loop, lifespan="off", log_config=None)
    config.load()
    config.http_protocol_class = guarded(Limits(), config.http_protocol_class)
    return config


@contextmanager
def serving(config: uvicorn.Config) -> Iterator[tuple[str, int]]:
    """A server in a thread. Yields its address."""
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[:2]
        finally:
            server.should_exit = True
            thread.join()
