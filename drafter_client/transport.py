"""HTTP/1.1 exchanges over kept-alive connections, with every byte counted.

The standard library's client, because a round trip is what the whole product spends its time on: measured
against a trivial route on loopback, httpx's client takes 1.8 times as long as this and its bare transport
1.5 times (`benchmarks/round_trip.py` has the current figures).
"""

import http.client
import ipaddress
import json
import socket
import ssl
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from drafter_client.errors import (
    BadReply,
    BadUrl,
    ConnectionLost,
    DrafterError,
    VerifierTimeout,
    VerifierUnreachable,
)

CONNECT_TIMEOUT = 5.0  # seconds
IDLE_LIMIT = 60.0  # seconds; the verifier keeps idle connections for 75, so ours is never the stale one


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: HTTP status and parsed JSON body."""

    status: int
    body: Any
    retry_after: float | None = None


class Transport(Protocol):
    """Where requests go. `sent` and `received` count bytes of HTTP, heads included."""

    sent: int
    received: int

    def exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout: float) -> Reply:
        """One request and its answer. Raises a VerifierUnreachable, ConnectionLost, VerifierTimeout or BadReply."""

    def stream(self, path: str, body: bytes, headers: dict[str, str], timeout: float) -> Iterator[tuple[str, Any]]:
        """POST, then server-sent events as (name, parsed data); an error reply is one event ("reply", Reply)."""

    def close(self) -> None:
        """Close the connection."""


class HttpTransport:
    """One connection to one verifier. `url` is http(s)://host[:port][/prefix]."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            raise BadUrl(f"{url!r} has a port that is not a number below 65536") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadUrl(f"{url!r} is not the address of a verifier: write http://host:port")
        self._url = url
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, port or (443 if self._secure else 80)
        self._prefix = parts.path.rstrip("/")
        self._proxy = None if _is_loopback(self._host) else _proxy_for(parts.scheme, self._host)
        self._connection: http.client.HTTPConnection | None = None
        self._last_used = 0.0
        self.sent = self.received = 0

    def exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout: float) -> Reply:
        response = self._send(method, path, body, headers, timeout)
        try:
            data = response.read()
        except TimeoutError:
            raise self._dropped(VerifierTimeout(f"{self._url} stopped answering within {timeout:.0f} s")) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._dropped(ConnectionLost(f"the connection to {self._url} broke: {error}")) from error
        self.received += len(data)
        if response.will_close:
            self.close()
        return self._reply(response, data)

    def stream(self, path: str, body: bytes, headers: dict[str, str], timeout: float) -> Iterator[tuple[str, Any]]:
        response = self._send("POST", path, body, headers, timeout)
        if response.status != 200:
            data = response.read()
            self.received += len(data)
            yield "reply", self._reply(response, data)
            return
        name = ""
        try:
            for line in response:
                self.received += len(line)
                field, _, value = line.rstrip(b"\r\n").partition(b": ")
                if field == b"event":
                    name = value.decode()
                elif field == b"data":
                    yield name, json.loads(value)
        except TimeoutError:
            raise self._dropped(VerifierTimeout(f"{self._url} sent nothing for {timeout:.0f} s")) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._dropped(ConnectionLost(f"the connection to {self._url} broke: {error}")) from error
        except ValueError as error:
            raise self._dropped(BadReply(f"{self._url} sent an event that is not JSON: {error}")) from None
        finally:
            if not response.isclosed():
                self.close()  # left in the middle: what is still on the way must not reach the next request

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout: float
    ) -> http.client.HTTPResponse:
        connection = self._connected()
        assert connection.sock is not None
        connection.sock.settimeout(timeout)
        target = self._prefix + path
        if self._proxy is not None and not self._secure:
            target = f"http://{self._host}:{self._port}{target}"
        try:
            connection.request(method, target, body, headers)
            self.sent += _request_size(method, target, self._host, self._port, body, headers)
            response = connection.getresponse()
        except TimeoutError:
            raise self._dropped(VerifierTimeout(f"{self._url} did not answer {path} within {timeout:.0f} s")) from None
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise self._dropped(ConnectionLost(f"the connection to {self._url} broke: {reason}")) from error
        except BaseException:  # Ctrl-C while waiting: the answer still to come must not be read as the next one's
            self.close()
            raise
        self.received += 17 + sum(len(name) + len(value) + 4 for name, value in response.getheaders())
        self._last_used = time.monotonic()
        return response

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is not None and time.monotonic() - self._last_used > IDLE_LIMIT:
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
            except (OSError, http.client.HTTPException) as error:
                through = f" through the proxy {host}:{port}" if self._proxy is not None else ""
                raise VerifierUnreachable(
                    f"no verifier answers at {self._url}{through} ({error}): is it running, and is the port right?"
                ) from error
            with suppress(OSError):  # some sockets (a tunnel's) have no such option
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection = connection
        return self._connection

    def _dropped(self, error: DrafterError) -> DrafterError:
        self.close()
        return error

    def _reply(self, response: http.client.HTTPResponse, data: bytes) -> Reply:
        wait = response.getheader("Retry-After", "")
        try:
            body = json.loads(data)
        except ValueError:
            if response.status == 200:
                raise BadReply(f"{self._url} answered with something that is not JSON: is it a verifier?") from None
            body = None
        return Reply(response.status, body, float(wait) if wait.isdigit() else None)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _proxy_for(scheme: str, host: str) -> tuple[str, int] | None:
    """The proxy of the environment for a host beyond loopback."""
    proxy = urllib.request.getproxies().get(scheme)
    if not proxy or urllib.request.proxy_bypass(host):
        return None
    parts = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    return (parts.hostname, parts.port or 8080) if parts.hostname else None


def _request_size(method: str, target: str, host: str, port: int, body: bytes | None, headers: dict[str, str]) -> int:
    """Bytes of a request as http.client writes it."""
    automatic = len(f"Host: {host}:{port}\r\nAccept-Encoding: identity\r\n")
    if body is not None:
        automatic += len(f"Content-Length: {len(body)}\r\n")
    given = sum(len(name) + len(value) + 4 for name, value in headers.items())
    return len(f"{method} {target} HTTP/1.1\r\n\r\n") + automatic + given + len(body or b"")
