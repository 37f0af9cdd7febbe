"""HTTP/1.1 exchanges over kept-alive connections, with every byte counted.

Built on the standard library's client, because round trips take most of a drafter's time: against a trivial route on
loopback, httpx's client took 1.8 times as long, and its bare transport 1.5 times.
"""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

from drafter_client.errors import BadReply, ConnectionLost, DrafterError, VerifierTimeout
from drafter_client.http.address import Address
from drafter_client.http.read_limit import ReadLimit
from drafter_client.http.traffic import CountedSocket, Traffic, keep_alive

CONNECT_TIMEOUT = 5.0  # seconds
IDLE_LIMIT = 60.0  # seconds; the verifier closes idle connections after 75, so this end gives them up first
_PROBE_AFTER, _PROBE_AGAIN = 5.0, 3.0  # seconds without a response until `/health` is probed, and probed again
_PROBE_TIMEOUT = 10.0  # seconds to wait for the probe; a busy verifier on a slow machine may take some of them


@dataclass(frozen=True, slots=True)
class Reply:
    """One response: HTTP status, parsed JSON body, and the Retry-After header in seconds."""

    status: int
    body: Any
    retry_after: float | None = None


class Transport(Protocol):
    """A connection that sends requests. `sent` and `received` count bytes of HTTP, heads included."""

    @property
    def sent(self) -> int: ...

    @property
    def received(self) -> int: ...

    def begin(self, method: str, path: str, body: bytes, headers: dict[str, str], timeout: float) -> None:
        """Send a request ahead of its `exchange`, which must be the next call. Never waits, and opens no connection.

        Raises no error: `exchange` raises the same one.
        """

    def exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout: float) -> Reply:
        """Send a request and return its response. `timeout` in seconds.

        While the response takes long, `/health` is probed; if that does not answer, the connection counts as lost.
        Raises VerifierUnreachable, ConnectionLost, VerifierTimeout or BadReply.
        """

    def stream(
        self, path: str, body: bytes | None, headers: dict[str, str], timeout: float
    ) -> Iterator[tuple[str, Any]]:
        """Send a POST, or a GET if there is no body; yield the server-sent events of the response as (name, parsed
        data).

        An error response is one event ("reply", Reply). Silence of `timeout` seconds counts as a lost connection: a
        verifier that has no event sends comments.
        """

    def connect(self) -> None:
        """Open a connection for the next request. Raises VerifierUnreachable."""

    def abort(self) -> None:
        """Make the exchange under way fail, and every later one. May be called from any thread."""

    def close(self) -> None:
        """Close the connection."""


class HttpTransport:
    """One connection to one verifier. `url` is http(s)://host[:port][/prefix]. Raises BadUrl.

    `checks_health`: whether to probe `/health` over another connection while a response takes long.
    """

    def __init__(self, url: str, *, checks_health: bool = True) -> None:
        self._checks_health = checks_health
        self._address = Address.read(url)
        self._url = self._address.url
        self._connection: http.client.HTTPConnection | None = None
        self._response: http.client.HTTPResponse | None = None
        self._socket: CountedSocket | None = None  # kept here, as the connection drops it when its last response begins
        self._begun: bytes | None = None  # the body of the request that was sent ahead
        self._prober: HttpTransport | None = None  # probes `/health` while a response takes long
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
        if begun is not None and begun is not body:  # the next response belongs to another request
            self.close()
        with self._guarded(path, timeout):
            if begun is not None and self._connection is not None:
                response = self._receive(self._connection, method, path, timeout)
            else:
                response = self._send(method, path, body, headers, timeout)
            data = response.read()
            # http.client takes a head that was cut off for a whole one.
            if not data and response.will_close and response.length is None:
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
            for line in response:  # of a refusal, nothing is left to read
                field, _, value = line.rstrip(b"\r\n").partition(b": ")
                if field == b"event":
                    name = value.decode(errors="replace")
                elif field == b"data":
                    yield name, self._parsed(value)
                    self._limit.next_event(path)
            # http.client takes a stream that was cut off between two chunks for a whole one.
            if response.chunked and (response.chunk_left is not None or not line) and refused is None:
                raise http.client.IncompleteRead(b"")
        if refused is not None:
            yield "reply", refused

    def connect(self) -> None:
        self._connected()
        self._last_used = time.monotonic()

    def abort(self) -> None:
        self._aborted = True  # before the socket is read: `_connected` checks it after setting the socket
        sock, prober = self._socket, self._prober
        if sock is not None:
            with suppress(OSError):  # it may just have been closed, or read to its end
                sock.shutdown(socket.SHUT_RDWR)
        if prober is not None:
            prober.abort()

    def close(self) -> None:
        if self._response is not None:  # perhaps read in part only
            self._response.close()
            self._response = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._socket = self._begun = None

    @contextmanager
    def _guarded(self, path: str, timeout: float, silence: type[DrafterError] = VerifierTimeout) -> Iterator[None]:
        """Translate the errors of an exchange, and close a connection on which the rest of a response may still come.

        `silence`: the error to raise if nothing came for `timeout` seconds.
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
        # Head and body in one packet: http.client would send two, and check every header again each time.
        connection.sock.sendall(self._head(method, path, headers, body) + (body or b""))

    def _receive(
        self, connection: http.client.HTTPConnection, method: str, path: str, timeout: float
    ) -> http.client.HTTPResponse:
        self._await_answer(path, timeout)
        self._limit.begin(self._url + path, path, timeout)
        self._response = response = http.client.HTTPResponse(connection.sock, method=method)
        response.begin()
        if response.will_close:
            connection.close()  # the response keeps the socket open until it is read
        self._limit.head(path, response.status, response.length)
        self._last_used = time.monotonic()
        return response

    def _await_answer(self, path: str, timeout: float) -> None:
        """Wait until the response begins. Raises TimeoutError, and ConnectionLost if `/health` does not answer."""
        waited, pause = 0.0, min(_PROBE_AFTER, timeout)
        while self._socket is not None and not self._socket.readable(pause):
            waited += pause
            if waited >= timeout:
                raise TimeoutError
            if self._checks_health:
                self._probe_health(path, waited)
            pause = min(_PROBE_AGAIN, timeout - waited)

    def _probe_health(self, path: str, waited: float) -> None:
        """Raise ConnectionLost if nothing answers at `/health` over another connection."""
        prober = self._prober = HttpTransport(self._url, checks_health=False)
        try:
            if self._aborted:
                prober.abort()
            prober.exchange("GET", "/health", None, {}, _PROBE_TIMEOUT)
        except BadReply:
            pass  # any answer shows that the server is there
        except DrafterError as error:
            raise ConnectionLost(
                f"{self._url}{path} sent nothing for {waited:g} s, and /health did not answer: {error}"
            ) from error
        finally:
            self._prober = None
            prober.close()

    def _head(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> bytes:
        target = self._address.request_target(path)
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._address.authority}", "Accept-Encoding: identity"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "\r\n"]).encode("ascii")

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is not None and self._is_stale(self._connection):
            self.close()
        if self._connection is None:
            connection = self._address.connect(CONNECT_TIMEOUT)
            keep_alive(connection.sock)
            self._socket = CountedSocket(connection.sock, self._traffic, self._limit)
            connection.sock = cast(socket.socket, self._socket)
            self._connection = connection
            if self._aborted:
                self.close()
                raise ConnectionLost(f"the exchange with {self._url} was aborted")
        return self._connection

    def _is_stale(self, connection: http.client.HTTPConnection) -> bool:
        """Whether the server has closed the connection, as its last response announced, or may have, as it was idle."""
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
        except (ValueError, RecursionError):  # RecursionError: thousands of brackets
            raise BadReply(f"{self._url} answered with something that is not JSON: is it a verifier?") from None
