"""A link to a node that a test cuts."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from urllib.parse import urlsplit


class _Server(ThreadingTCPServer):
    allow_reuse_address = True


class Link:
    """Carries connections to the node at `to`, until it is cut."""

    def __init__(self, to: str, port: int = 0) -> None:
        """`port`: its own, such as that of a link that was cut; 0: any."""
        target = urlsplit(to).hostname, urlsplit(to).port
        self._open: list[socket.socket] = []
        link = self

        class Joined(BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(target) as node:
                    link._open += [self.request, node]
                    back = threading.Thread(target=_carry, args=(node, self.request), daemon=True)
                    back.start()
                    _carry(self.request, node)
                    back.join()

        self._server = _Server(("127.0.0.1", port), Joined)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Break all connections; no new ones can be made."""
        self._server.shutdown()
        self._server.socket.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def link(to: str, port: int = 0) -> Iterator[Link]:
    made = Link(to, port)
    try:
        yield made
    finally:
        made.cut()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
