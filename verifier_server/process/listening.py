"""The sockets that the verifier listens on, taken before the model loads: a port in use is told at once."""

import errno
import logging
import os
import socket
from contextlib import ExitStack

import uvicorn

from verifier_server.settings import SettingsError

_log = logging.getLogger("uvicorn.error")  # whose lines say where it listens


def take(host: str, port: int) -> list[socket.socket]:
    """A bound socket for each address of `host`; a port of 0 takes a free one. Raises SettingsError."""
    with ExitStack() as on_failure:
        sockets: list[socket.socket] = []
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, protocol, _, address in dict.fromkeys(found):
                own = on_failure.enter_context(socket.socket(family, kind, protocol))
                if os.name == "posix":  # elsewhere it would share the port with another process
                    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                own.bind(address)
                own.listen()  # or two processes could have bound it
                sockets.append(own)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise SettingsError(f"port {port} is in use: choose another with --port") from None
            reason = error.strerror or str(error)
            raise SettingsError(f"cannot listen on {host}, port {port}: {reason}: see --host and --port") from None
        on_failure.pop_all()
    return sockets


class Server(uvicorn.Server):
    """uvicorn, on sockets that are bound; it says where it listens, which uvicorn leaves to whoever bound them."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for own in sockets or ():
            host, port = own.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            _log.info("Uvicorn running on http://%s:%d (Press CTRL+C to quit)", shown, port)
