"""One connection to a verifier as an httpx transport, which probes while a response takes long.

httptools parses the responses. httpcore's own connection parses with h11, which is written in Python. With it, an
exchange takes the drafter's processor half as long again or twice as long, and a draft waits for that twice: when the
answer before it is read, and when it is sent.
"""

import functools
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import httpcore
import httpx

from drafter_client.http.addresses import proxy_for
from drafter_client.http.trust import SYSTEM, Trust
from specpair.protocol.http_reply import ReplyError, ReplyParser, request_head

_READ = 64 * 1024  # bytes, at most, of one read
CONNECT_TIMEOUT = 5.0  # seconds
IDLE_LIMIT = 60.0  # seconds; the verifier closes idle connections after 75, so this end gives them up first
LOOK_AFTER = 1.0  # seconds of idleness after which the socket is checked for a server that has closed
PROBE_AFTER, PROBE_AGAIN = 5.0, 3.0  # seconds without a response until `on_silence` is called, and called again


class Http11Connection:
    """One exchange at a time over `stream`. Raises the errors of httpx. A request's body must have the length that its
    headers say."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._closed = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        limits, reply = request.extensions["timeout"], ReplyParser()
        head = request_head(request.method.encode(), request.url.raw_path, request.headers.raw)
        try:
            with _errors_of_httpx():
                with suppress(httpcore.WriteError):  # a server may refuse a request before it has it all, and say why
                    for part in (head, *cast(Iterable[bytes], request.stream)):
                        self._stream.write(part, limits["write"])
                while reply.head is None:
                    self._read(reply, limits)
        except BaseException:
            reply.end()
            self.close()
            raise
        body = Body(self._body(reply, limits), functools.partial(self._over, reply))
        version, stream = b"HTTP/" + reply.version.encode(), self._stream
        more = {"http_version": version, "reason_phrase": reply.reason, "network_stream": stream}
        return httpx.Response(reply.head.status, headers=reply.head.headers, stream=body, extensions=more)

    def _body(self, reply: ReplyParser, limits: dict[str, Any]) -> Iterator[bytes]:
        while True:
            if reply.held:
                yield reply.take()
            if reply.complete:
                return
            self._read(reply, limits)

    def _read(self, reply: ReplyParser, limits: dict[str, Any]) -> None:
        """`limits`: the timeouts, in seconds; they may change between reads."""
        data = self._stream.read(_READ, limits.get("read"))
        try:
            if data:
                reply.feed(data)
            else:
                reply.end_of_input()
        except ReplyError as error:
            raise httpcore.RemoteProtocolError(str(error)) from error

    def _over(self, reply: ReplyParser) -> None:
        reply.end()
        if not reply.reusable:
            self.close()

    def close(self) -> None:
        self._closed = True
        self._stream.close()

    def is_closed(self) -> bool:
        return self._closed

    def has_expired(self) -> bool:
        """Whether the server has closed the idle connection, or sent what nobody asked for."""
        return bool(self._stream.get_extra_info("is_readable"))


class VerifierTransport(httpx.BaseTransport, httpcore.NetworkBackend):
    """One connection to the verifier at `url`, through the proxy that the environment names. Raises BadUrl.

    Requests raise also what `on_read` and `on_silence` raise.
    """

    def __init__(
        self,
        url: httpx.URL,
        on_read: Callable[[], None],
        on_silence: Callable[[float], None] | None,
        at: str,
        trust: Trust,
    ) -> None:
        """`on_read`: called before each read.
        `on_silence`: called with the seconds waited, again and again while a response takes long.
        `at`: the network address to take of those that the name in `url` has; empty: any. A proxy chooses itself.
        """
        self._at, self._trust = at, trust
        self.on_read, self.on_silence = on_read, on_silence
        self.proxy = proxy_for(url)
        self.secure = url.scheme == "https"
        self.stream: _Stream | None = None
        self.awaits_head = False
        self.on_sent: Callable[[], None] | None = None  # called once, when the next request is sent
        host = url.raw_host
        if b":" in host and self.proxy is not None and self.proxy.url.scheme in ("http", "https"):
            host = b"[%b]" % host  # httpcore writes it to the proxy as it is
        self._url = functools.partial(httpcore.URL, scheme=url.raw_scheme, host=host, port=url.port)
        self._connection: Http11Connection | _ProxiedConnection | None = None
        self._last_used = 0.0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        connection = self.connect()
        self.awaits_head = True
        response = connection.handle_request(request)
        self.awaits_head = False
        self._last_used = time.monotonic()
        return response

    def connect(self) -> "Http11Connection | _ProxiedConnection":
        """Return the connection, which is opened unless it is there. Through a proxy, its first request opens it."""
        idle = time.monotonic() - self._last_used
        if self._connection is not None and (
            # To look at the socket gives other threads the interpreter, which in a round comes back late.
            self._connection.is_closed() or idle > IDLE_LIMIT or (idle > LOOK_AFTER and self._connection.has_expired())
        ):
            self.close()
        if self._connection is None:
            with _errors_of_httpx():
                self._connection = self._opened(self._url(target=b"/").origin)
            self._last_used = time.monotonic()
        return self._connection

    def _opened(self, origin: httpcore.Origin) -> "Http11Connection | _ProxiedConnection":
        tls = self._trust.context if self.secure else None
        if self.proxy is not None:
            to_proxy = SYSTEM.context if self.proxy.url.scheme == "https" else None
            proxy = httpcore.Proxy(str(self.proxy.url), self.proxy.raw_auth, ssl_context=to_proxy)
            pool = httpcore.ConnectionPool(tls, proxy, network_backend=self)
            return _ProxiedConnection(pool.create_connection(origin), self._url)
        host = origin.host.decode()
        stream = self.connect_tcp(self._at or host, origin.port)
        return Http11Connection(stream if tls is None else stream.start_tls(tls, host))

    def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> "_Stream":
        inner = httpcore.SyncBackend().connect_tcp(host, port, CONNECT_TIMEOUT)
        self.stream = _Stream(inner, self, connecting=self.secure)
        return self.stream

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
        self._connection = self.stream = None


class _ProxiedConnection:
    """A connection of httpcore's through a proxy. `url`: makes its addresses."""

    def __init__(self, connection: httpcore.ConnectionInterface, url: Callable[..., httpcore.URL]) -> None:
        self._connection, self._url = connection, url
        self.is_closed, self.has_expired = connection.is_closed, connection.has_expired

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url, sent = self._url(target=request.url.raw_path), request.headers.raw
        with _errors_of_httpx():
            response = self._connection.handle_request(
                httpcore.Request(
                    request.method, url, headers=sent, content=request.stream, extensions=request.extensions
                )
            )
        body = Body(response.iter_stream(), response.close)
        return httpx.Response(response.status, headers=response.headers, stream=body, extensions=response.extensions)


class _Stream(httpcore.NetworkStream):
    """A stream of httpcore. What is written is sent by the next `read`: head and body in one packet.

    `connecting`: whether a proxy is read, before TLS begins.
    """

    def __init__(self, inner: httpcore.NetworkStream, transport: VerifierTransport, *, connecting: bool) -> None:
        self._inner, self._transport, self._connecting = inner, transport, connecting
        self._unsent = b""

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent += buffer

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._transport.on_read()
        if self._unsent:
            self._inner.write(self._unsent, timeout)
            self._unsent = b""
            on_sent, self._transport.on_sent = self._transport.on_sent, None
            if on_sent is not None:
                on_sent()
        if timeout is None or self._connecting:
            try:
                return self._inner.read(max_bytes, CONNECT_TIMEOUT)
            except httpcore.ReadTimeout:
                raise httpcore.ConnectTimeout(f"the proxy sent nothing for {CONNECT_TIMEOUT:g} s") from None
        if not self._transport.awaits_head or self._transport.on_silence is None:
            return self._inner.read(max_bytes, timeout)
        waited, pause = 0.0, min(PROBE_AFTER, timeout)
        while True:
            try:
                return self._inner.read(max_bytes, pause)
            except httpcore.ReadTimeout:
                waited += pause
                if waited >= timeout:
                    raise
            self._transport.on_silence(waited)
            pause = min(PROBE_AGAIN, timeout - waited)

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "_Stream":
        host = server_hostname and server_hostname.strip("[]")  # of an IPv6 address that went to a proxy
        secured = self._inner.start_tls(ssl_context, host, CONNECT_TIMEOUT)
        self._transport.stream = _Stream(secured, self._transport, connecting=False)
        return self._transport.stream

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class Body(httpx.SyncByteStream):
    """The body of a response, which comes in `parts`. `close`: ends it early."""

    def __init__(self, parts: Iterable[bytes], close: Callable[[], None]) -> None:
        self._parts, self._close = parts, close

    def __iter__(self) -> Iterator[bytes]:
        with _errors_of_httpx():
            yield from self._parts

    def close(self) -> None:
        self._close()


@contextmanager
def _errors_of_httpx() -> Iterator[None]:
    """Raise an error of httpcore as that of httpx, which has the same name."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error


def shut_down(stream: httpcore.NetworkStream | None) -> None:
    """Shut down `stream`, if any, which ends a thread's read or write."""
    sock = stream and stream.get_extra_info("socket")
    if isinstance(sock, socket.socket):
        with suppress(OSError):  # it may just have been closed
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # that of an SSLSocket would break its reader
