"""A server on a bare socket: it sends the bytes that a test gives it, and counts what it receives."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from drafter_client.errors import ConnectionLost
from drafter_client.http.connection import HttpConnection

PATIENCE = 10.0  # seconds after which a test has failed
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Request:
    """One request as it came over the socket."""

    head: bytes
    body: bytes

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode()


class Peer:
    """The server's end of one connection."""

    def __init__(self, connection: socket.socket, log: "RawServer") -> None:
        self.connection, self.log = connection, log
        self.file = connection.makefile("rb")

    def read(self) -> Request | None:
        """The next request; None when the client has closed."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            try:
                line = self.file.readline()
            except ConnectionResetError:  # the client closed before it had read everything
                return None
            if not line:
                return None
            head += line
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        body = self.file.read(int(lengths[0].split(b":")[1])) if lengths else b""
        self.log.received += len(head) + len(body)
        self.log.requests.append(Request(head, body))
        return self.log.requests[-1]

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)
        self.log.sent += len(data)

    def reply(self, body: bytes, status: str = "200 OK", *headers: str) -> None:
        """Send a whole response."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def close(self) -> None:
        """Close at once, not when the last file over the socket is closed."""
        self.file.close()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def chunk(data: bytes) -> bytes:
    """A chunk of a body that `CHUNKED` announces."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def echo(peer: Peer) -> None:
    """Answer every request of a connection with its own body."""
    while (request := peer.read()) is not None:
        peer.reply(request.body or b"{}")


def over_tls(context: ssl.SSLContext, script: Callable[[Peer], None] = echo) -> Callable[[Peer], None]:
    """`script` on the encrypted connection of a server with these settings."""

    def secured(peer: Peer) -> None:
        try:
            with context.wrap_socket(peer.connection, server_side=True) as encrypted:
                inner = Peer(encrypted, peer.log)
                with closing(inner.file):
                    script(inner)
        except (ssl.SSLError, ConnectionError):  # the client refuses the certificate, or has none
            pass

    return secured


@dataclass
class RawServer:
    """Its port, and what it received and sent."""

    port: int
    requests: list[Request] = field(default_factory=list)
    received: int = 0
    sent: int = 0
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def read_events(
    connection: HttpConnection, path: str = "/generate", body: bytes | None = b"{}", timeout: float = 10.0
) -> Iterator[tuple[str, bytes]]:
    """The server-sent events of a response, as a client reads them."""
    method = "GET" if body is None else "POST"
    with connection.respond(method, path, body, [], timeout, silence=ConnectionLost) as response:
        yield from connection.events(response)


@contextmanager
def answering(*scripts: Callable[[Peer], None]) -> Iterator[RawServer]:
    """A server that runs one script per connection, in order of arrival, and then accepts no more."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(PATIENCE)
        server = RawServer(listener.getsockname()[1])
        failures: list[BaseException] = []

        def run() -> None:
            try:
                for script in scripts:
                    connection, _ = listener.accept()
                    connection.settimeout(PATIENCE)
                    server.connections += 1
                    with connection:
                        peer = Peer(connection, server)
                        with closing(peer.file):
                            script(peer)
            except BaseException as error:
                failures.append(error)
            listener.close()

        thread = threading.Thread(target=run, name="raw server")
        thread.start()
        try:
            yield server
        finally:
            thread.join(PATIENCE)
        assert not thread.is_alive(), "the script still waits for the client"
        if failures:
            raise failures[0]
