"""An httpx transport with one connection to one verifier, built on httpcore, which lends its network layer to count
bytes, to abort and to notice silence."""

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import httpcore
import httpx

from drafter_client.http.address import proxy_for
from drafter_client.http.traffic import Traffic

CONNECT_TIMEOUT = 5.0  # seconds
IDLE_LIMIT = 60.0  # seconds; the verifier closes idle connections after 75, so this end gives them up first
_PROBE_AFTER, _PROBE_AGAIN = 5.0, 3.0  # seconds without a response until `on_silence` is called, and called again
# Socket options, where the system has them, to notice a peer that is gone without closing: seconds of silence before
# the first probe, seconds between probes, number of probes; milliseconds until unacknowledged data count as lost.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPALIVE": 5, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 15_000}


class VerifierTransport(httpx.BaseTransport):
    """One connection to the verifier at `url`, through the proxy that the environment names. Raises BadUrl.

    Certificates are checked against those that the system trusts, or those in SSL_CERT_FILE and SSL_CERT_DIR. Raises
    the errors of httpcore, and what `on_silence` and `traffic` raise.
    """

    def __init__(self, url: httpx.URL, traffic: Traffic, on_silence: Callable[[float], None] | None) -> None:
        """`traffic`: counts every byte of HTTP, unencrypted. `on_silence`: called with the seconds waited, again and
        again while a response takes long."""
        self.traffic, self.on_silence = traffic, on_silence
        self.aborted = False
        self.awaits_response = False  # whether nothing of the response has come yet
        self.proxy = proxy_for(url)
        self._host = url.raw_host
        if b":" in self._host and self.proxy is not None and self.proxy.url.scheme in ("http", "https"):
            self._host = b"[%b]" % self._host  # httpcore writes it to the proxy as it is
        self._origin = httpcore.URL(scheme=url.raw_scheme, host=self._host, port=url.port, target=b"").origin
        self._connection: httpcore.ConnectionInterface | None = None
        self._stream: _Stream | None = None
        self._last_used = 0.0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        asked = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.raw_scheme, host=self._host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        self.connect()
        assert self._connection is not None
        self.awaits_response = True
        response = self._connection.handle_request(asked)
        self._last_used = time.monotonic()
        assert isinstance(response.stream, Iterable)
        return httpx.Response(
            response.status, headers=response.headers, stream=_Body(response.stream), extensions=response.extensions
        )

    def connect(self) -> None:
        """Open a connection for the next request, unless there is one. Through a proxy the request itself opens it."""
        connection = self._connection
        if connection is not None and self._is_stale(connection):
            self.close()
        if self._connection is None:
            self._connection = self._opened()
            self._last_used = time.monotonic()

    def _is_stale(self, connection: httpcore.ConnectionInterface) -> bool:
        """Whether the server has closed the connection, or may have, as it was idle."""
        idle = time.monotonic() - self._last_used
        return connection.is_closed() or connection.has_expired() or idle > IDLE_LIMIT

    def _opened(self) -> httpcore.ConnectionInterface:
        tls = ssl.create_default_context() if self._origin.scheme == b"https" else None
        network = _Network(self, connecting=tls is not None)
        if self.proxy is not None:
            to_proxy = ssl.create_default_context() if self.proxy.url.scheme == "https" else None
            url = httpcore.URL(str(self.proxy.url))
            proxy = httpcore.Proxy(url, self.proxy.raw_auth, ssl_context=to_proxy)
            pool = httpcore.ConnectionPool(ssl_context=tls, proxy=proxy, network_backend=network)
            return pool.create_connection(self._origin)
        host = self._origin.host.decode()
        stream = network.connect_tcp(host, self._origin.port)
        return httpcore.HTTP11Connection(self._origin, stream if tls is None else stream.start_tls(tls, host))

    def use(self, stream: "_Stream") -> "_Stream":
        """Take `stream` for the one that `abort` shuts down."""
        self._stream = stream
        if self.aborted:  # read after setting the stream, as `abort` sets it before it reads the stream
            stream.close()
            raise httpcore.ConnectError("aborted")
        return stream

    def abort(self) -> None:
        """Make the exchange under way fail, and every later one. May be called from any thread."""
        self.aborted = True
        if self._stream is not None:
            shut_down(self._stream)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._stream = None


class _Network(httpcore.NetworkBackend):
    """Opens the streams of a transport."""

    def __init__(self, transport: VerifierTransport, connecting: bool) -> None:
        self._transport, self._connecting = transport, connecting

    def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> "_Stream":
        try:
            stream = httpcore.SyncBackend().connect_tcp(host, port, CONNECT_TIMEOUT)
        except UnicodeError as error:  # an invalid host name
            raise httpcore.ConnectError(str(error)) from None
        _keep_alive(stream.get_extra_info("socket"))
        return self._transport.use(_Stream(stream, self._transport, self._connecting))


class _Stream(httpcore.NetworkStream):
    """A stream of httpcore, whose bytes are counted and bounded, and which calls `on_silence`."""

    def __init__(self, inner: httpcore.NetworkStream, transport: VerifierTransport, connecting: bool) -> None:
        """`connecting`: whether what is read is a proxy's answer, before TLS begins."""
        self._inner, self._transport, self._connecting = inner, transport, connecting
        self._unsent = b""

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent += buffer  # sent by the next `read`: head and body in one packet

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        transport = self._transport
        if self._unsent:
            unsent, self._unsent = self._unsent, b""
            self._inner.write(unsent, timeout)
            transport.traffic.sent += len(unsent)
        if timeout is None or self._connecting:
            data = self._read_from_proxy(max_bytes)
        elif transport.awaits_response and transport.on_silence is not None:
            data = self._read_patiently(max_bytes, timeout, transport.on_silence)
            transport.awaits_response = False
        else:
            data = self._inner.read(max_bytes, timeout)
        transport.traffic.count(len(data))
        return data

    def _read_from_proxy(self, max_bytes: int) -> bytes:
        try:
            return self._inner.read(max_bytes, CONNECT_TIMEOUT)
        except httpcore.ReadTimeout:
            raise httpcore.ConnectTimeout(f"the proxy sent nothing for {CONNECT_TIMEOUT:g} s") from None

    def _read_patiently(self, max_bytes: int, timeout: float, on_silence: Callable[[float], None]) -> bytes:
        waited, pause = 0.0, min(_PROBE_AFTER, timeout)
        while True:
            try:
                return self._inner.read(max_bytes, pause)
            except httpcore.ReadTimeout:
                waited += pause
                if waited >= timeout:
                    raise
            on_silence(waited)
            pause = min(_PROBE_AGAIN, timeout - waited)

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        host = server_hostname and server_hostname.strip("[]")  # of an IPv6 address that went to a proxy
        secured = self._inner.start_tls(ssl_context, host, CONNECT_TIMEOUT)
        return self._transport.use(_Stream(secured, self._transport, connecting=False))

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Body(httpx.SyncByteStream):
    """The body of a response of httpcore."""

    def __init__(self, stream: Iterable[bytes]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stream)

    def close(self) -> None:
        self._stream.close()  # type: ignore[attr-defined]  # of a connection it has one


def shut_down(stream: httpcore.NetworkStream) -> None:
    """End what a thread reads from or writes to `stream`."""
    with suppress(OSError):  # it may just have been closed
        stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


def _keep_alive(sock: socket.socket) -> None:
    """Have the system notice within about 15 seconds that the peer is gone without closing."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):
            with suppress(OSError):  # a system may name an option and not support it
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
