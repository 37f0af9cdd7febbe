"""HTTP/1.1 exchanges over kept-alive connections, with every byte counted.

On the standard library's client, because a round trip is what the whole product spends its time on: measured once
against a trivial route on loopback, httpx's client took 1.8 times as long and its bare transport 1.5 times.
"""

import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from drafter_client.errors import (
    BadReply,
    BadUrl,
    ConnectionLost,
    DrafterError,
    VerifierTimeout,
    VerifierUnreachable,
)
from drafter_client.http.address import authority_of, is_loopback, proxy_for
from drafter_client.http.read_limit import ReadLimit
from drafter_client.http.traffic import CountedSocket, Traffic, keep_alive

CONNECT_TIMEOUT = 5.0  # seconds
IDLE_LIMIT = 60.0  # seconds; the verifier keeps idle connections for 75, so ours is never the stale one
_LOOK_AFTER, _LOOK_AGAIN = 5.0, 3.0  # seconds without an answer after which `/health` is asked beside
_LOOK_TIMEOUT = 10.0  # seconds; a verifier at work on a slow machine may take some of them


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: HTTP status and parsed JSON body."""

    status: int
    body: Any
    retry_after: float | None = None


class Transport(Protocol):
    """Where requests go. `sent` and `received` count bytes of HTTP, heads included."""

    @property
    def sent(self) -> int: ...

    @property
    def received(self) -> int: ...

    def begin(self, method: str, path: str, body: bytes, headers: dict[str, str], timeout: float) -> None:
        """Send a request ahead of its `exchange`, the very next one, if that takes no new connection. Never waits.

        Whatever goes wrong, that exchange meets again.
        """

    def exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout: float) -> Reply:
        """One request and its answer. Raises a VerifierUnreachable, ConnectionLost, VerifierTimeout or BadReply.

        An answer that takes long is waited for as long as something answers at `/health`; else the connection is lost.
        """

    def stream(
        self, path: str, body: bytes | None, headers: dict[str, str], timeout: float
    ) -> Iterator[tuple[str, Any]]:
        """POST (GET without a body), then server-sent events as (name, parsed data).

        An error reply is one event ("reply", Reply). Silence of `timeout` seconds is a lost connection: whoever has
        nothing to say sends a comment now and then.
        """

    def connect(self) -> None:
        """Have a connection ready for what comes. Raises VerifierUnreachable."""

    def abort(self) -> None:
        """Make what is under way fail, and all that comes after it. From any thread."""

    def close(self) -> None:
        """Close the connection."""


class HttpTransport:
    """One connection to one verifier. `url` is http(s)://host[:port][/prefix].

    `checks_health`: whether it asks at `/health`, over another connection, while an answer takes long.
    """

    def __init__(self, url: str, *, checks_health: bool = True) -> None:
        self._checks_health = checks_health
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:  # an unfinished IPv6 address, a port that is no number below 65536
            raise BadUrl(f"{url!r} is not the address of a verifier ({error}): write http://host:port") from None
        odd = not parts.path.isascii() or any(sign.isspace() or not sign.isprintable() for sign in url)
        if parts.scheme not in ("http", "https") or not parts.hostname or odd:
            raise BadUrl(f"{url!r} is not the address of a verifier: write http://host:port")
        self._url = url.rstrip("/")
        self._authority = authority_of(parts.hostname, port)
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, port or (443 if self._secure else 80)
        self._prefix = parts.path.rstrip("/")
        self._proxy = None if is_loopback(self._host) else proxy_for(parts.scheme, self._host)
        self._connection: http.client.HTTPConnection | None = None
        self._response: http.client.HTTPResponse | None = None
        self._socket: CountedSocket | None = None  # the connection's, which gives it up when a last answer begins
        self._begun: bytes | None = None  # the body of a request that was sent ahead
        self._beside: HttpTransport | None = None  # asks at `/health` while an answer takes long
        self._last_used = 0.0
        self._aborted = False
        self._traffic, self._limit = Traffic(), ReadLimit()

    @property
    def sent(self) -> int:
        return self._traffic.sent

    @property
    def received(self) -> int:
        return self._traffic.received

    def begin(self, method: str, path: str, body: bytes, headers: dict[str, str], timeout: float) -> None:
        if self._connection is None or self._is_stale(self._connection):
            return
        try:
            self._write(self._connection, method, path, body, headers, timeout)
            self._begun = body
        except OSError:
            self.close()

    def exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout: float) -> Reply:
        begun, self._begun = self._begun, None
        if begun is not None and begun is not body:  # the answer that comes first is another's
            self.close()
        with self._guarded(path, timeout):
            if begun is not None and self._connection is not None:
                response = self._receive(self._connection, method, path, timeout)
            else:
                response = self._send(method, path, body, headers, timeout)
            data = response.read()
            if not data and response.will_close and response.length is None:  # http.client takes half a head for whole
                raise http.client.IncompleteRead(data)
            return self._reply(response, data)

    def stream(
        self, path: str, body: bytes | None, headers: dict[str, str], timeout: float
    ) -> Iterator[tuple[str, Any]]:
        refused: Reply | None = None
        name = ""
        with self._guarded(path, timeout, ConnectionLost):
            response = self._send("GET" if body is None else "POST", path, body, headers, timeout)
            if response.status != 200:
                refused = self._reply(response, response.read())
            self._limit.next_event(path)
            line = b""
            for line in response:  # nothing is left of a refusal
                field, _, value = line.rstrip(b"\r\n").partition(b": ")
                if field == b"event":
                    name = value.decode(errors="replace")
                elif field == b"data":
                    yield name, self._parsed(value)
                    self._limit.next_event(path)
            # http.client takes a stream that was cut between two chunks for a whole one.
            if response.chunked and (response.chunk_left is not None or not line) and refused is None:
                raise http.client.IncompleteRead(b"")
        if refused is not None:
            yield "reply", refused

    def connect(self) -> None:
        self._connected()
        self._last_used = time.monotonic()

    def abort(self) -> None:
        self._aborted = True  # before a look at the socket: whoever is about to have one looks at this after
        sock, beside = self._socket, self._beside
        if sock is not None:
            with suppress(OSError):  # it may just have been closed, or its last answer read to the end
                sock.shutdown(socket.SHUT_RDWR)
        if beside is not None:
            beside.abort()

    def close(self) -> None:
        if self._response is not None:  # which may be read in part only
            self._response.close()
            self._response = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._socket = self._begun = None

    @contextmanager
    def _guarded(self, path: str, timeout: float, silence: type[DrafterError] = VerifierTimeout) -> Iterator[None]:
        """Errors of an exchange by our names, and no connection kept on which the rest of an answer may still come.

        `silence`: the error for it.
        """
        try:
            yield
        except TimeoutError:
            self.close()
            raise silence(f"{self._url}{path} sent nothing for {timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            reason = str(error) or type(error).__name__
            raise ConnectionLost(f"the connection to {self._url} broke: {reason}") from error
        except BaseException:  # Ctrl-C while waiting, a stream left in the middle
            self.close()
            raise

    def _send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout: float
    ) -> http.client.HTTPResponse:
        connection = self._connected()
        self._write(connection, method, path, body, headers, timeout)
        return self._receive(connection, method, path, timeout)

    def _write(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        timeout: float,
    ) -> None:
        connection.sock.settimeout(timeout)
        # Head and body in one packet: http.client would send two, and checks every header anew each time.
        connection.sock.sendall(self._head(method, path, headers, body) + (body or b""))

    def _receive(
        self, connection: http.client.HTTPConnection, method: str, path: str, timeout: float
    ) -> http.client.HTTPResponse:
        self._await_answer(path, timeout)
        self._limit.begin(self._url + path, path, timeout)
        self._response = response = http.client.HTTPResponse(connection.sock, method=method)
        response.begin()
        if response.will_close:
            connection.close()  # the response keeps the socket until it is read
        self._limit.head(path, response.status, response.length)
        self._last_used = time.monotonic()
        return response

    def _await_answer(self, path: str, timeout: float) -> None:
        """Wait until the answer begins. Raises TimeoutError, and ConnectionLost where nothing answers beside."""
        waited, pause = 0.0, min(_LOOK_AFTER, timeout)
        while self._socket is not None and not self._socket.readable(pause):
            waited += pause
            if waited >= timeout:
                raise TimeoutError
            if self._checks_health:
                self._look_beside(path, waited)
            pause = min(_LOOK_AGAIN, timeout - waited)

    def _look_beside(self, path: str, waited: float) -> None:
        """Raise ConnectionLost if nothing answers at `/health` over another connection."""
        beside = self._beside = HttpTransport(self._url, checks_health=False)
        try:
            if self._aborted:
                beside.abort()
            beside.exchange("GET", "/health", None, {}, _LOOK_TIMEOUT)
        except BadReply:
            pass  # whatever it said, it is there
        except DrafterError as error:
            raise ConnectionLost(
                f"{self._url}{path} sent nothing for {waited:g} s, and nothing answers beside: {error}"
            ) from error
        finally:
            self._beside = None
            beside.close()

    def _head(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> bytes:
        target = self._prefix + path
        if self._proxy is not None and not self._secure:
            target = f"http://{self._authority}{target}"
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._authority}", "Accept-Encoding: identity"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "\r\n"]).encode("ascii")

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is not None and self._is_stale(self._connection):
            self.close()
        if self._connection is None:
            host, port = self._proxy or (self._host, self._port)
            if self._secure:
                context = ssl.create_default_context()
                connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                    host, port, timeout=CONNECT_TIMEOUT, context=context
                )
                if self._proxy is not None:
                    connection.set_tunnel(self._host, self._port)
            else:
                connection = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT)
            try:
                connection.connect()
            except (OSError, UnicodeError, http.client.HTTPException) as error:  # Unicode: a host that cannot be one
                connection.close()
                through = f" through the proxy {host}:{port}" if self._proxy is not None else ""
                raise VerifierUnreachable(
                    f"no verifier answers at {self._url}{through} ({error}): is it running, and is the port right?"
                ) from error
            keep_alive(connection.sock)
            self._socket = CountedSocket(connection.sock, self._traffic, self._limit)
            connection.sock = cast(socket.socket, self._socket)
            self._connection = connection
            if self._aborted:
                self.close()
                raise ConnectionLost(f"the exchange with {self._url} was broken off")
        return self._connection

    def _is_stale(self, connection: http.client.HTTPConnection) -> bool:
        """Whether they have closed it, as their last answer had announced, or may have."""
        return connection.sock is None or time.monotonic() - self._last_used > IDLE_LIMIT

    def _reply(self, response: http.client.HTTPResponse, data: bytes) -> Reply:
        wait = response.getheader("Retry-After", "")
        try:
            body = self._parsed(data)
        except BadReply:
            if response.status == 200:
                raise
            body = None
        return Reply(response.status, body, float(wait) if wait.isdecimal() else None)

    def _parsed(self, data: bytes) -> Any:
        try:
            return json.loads(data)
        except (ValueError, RecursionError):  # the latter for thousands of brackets
            raise BadReply(f"{self._url} answered with something that is not JSON: is it a verifier?") from None
