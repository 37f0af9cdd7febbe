"""The sockets that a service listens on. They are bound before a model loads, so a port in use fails at once."""

import errno
import logging
import socket
from contextlib import ExitStack

import uvicorn

from command_line.errors import SettingsError

_log = logging.getLogger("uvicorn.error")  # the logger on which uvicorn says where it listens


def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address of `host`; port 0 takes a free one. Raises SettingsError."""
    with ExitStack() as on_failure:
        sockets: list[socket.socket] = []
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, address in dict.fromkeys((family, address) for family, *_, address in found):
                # It listens at once: else a second process could bind the port, too.
                sockets.append(on_failure.enter_context(socket.create_server(address, family=family)))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise SettingsError(f"port {port} is in use: choose another with --port") from None
            reason = (error.strerror or str(error)).partition(" (while ")[0]  # `create_server` adds the address
            raise SettingsError(f"cannot listen on {host}, port {port}: {reason}: see --host and --port") from None
        on_failure.pop_all()
    return sockets


class Server(uvicorn.Server):
    """uvicorn on sockets that are bound already. It logs where it listens, which uvicorn omits for such sockets."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for bound in sockets or ():
            host, port = bound.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            _log.info("Uvicorn running on http://%s:%d (Press CTRL+C to quit)", shown, port)
