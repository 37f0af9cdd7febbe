"""Exchanges with one verifier, one at a time: requests, responses, server-sent events, errors of the network."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import httpcore
import httpx
import socksio

from drafter_client.errors import BadReply, BadUrl, ConnectionLost, DrafterError, VerifierTimeout, VerifierUnreachable
from drafter_client.http.shared_transport import SharedTransport
from drafter_client.http.traffic import Traffic
from drafter_client.http.transport import CONNECT_TIMEOUT, VerifierTransport

Headers = list[tuple[bytes, bytes]]

_PROBE_TIMEOUT = 10.0  # seconds to wait for the probe; a busy verifier on a slow machine may take some of them
_TIMEOUTS = (httpx.TimeoutException, httpcore.TimeoutException)
_CANNOT_CONNECT = (
    *(httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError),
    *(httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.ProxyError, socksio.ProtocolError),
    UnicodeError,  # an invalid host name
)
_BROKEN = (
    *_CANNOT_CONNECT,
    *(httpx.TransportError, httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, OSError),
)


class HttpConnection:
    """Exchanges with the verifier at `url`, which has the form http(s)://host[:port][/prefix]. Raises BadUrl.

    Used by one thread at a time. While a response takes long, `/health` is probed over another connection; if that does
    not answer, the connection counts as lost.
    """

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None, *, checks_health: bool = True) -> None:
        """`transport`: sends the requests, is shared with others and not closed; none of its responses is probed for.
        None: a connection of its own. `checks_health`: whether to probe `/health`."""
        address = _parsed(url)
        self._url = url.rstrip("/")
        prefix = address.raw_path.partition(b"?")[0].rstrip(b"/")
        self._address_of = functools.lru_cache(16)(lambda path: address.copy_with(raw_path=prefix + path.encode()))
        self._headers = [(b"Host", address.netloc), (b"Accept-Encoding", b"identity")]
        self._path = ""  # of the exchange under way
        self._prober: HttpConnection | None = None  # probes `/health` while a response takes long
        self.traffic = Traffic()  # over a transport that was given, without the framing of HTTP
        self._transport: VerifierTransport | SharedTransport
        if transport is None:
            self._transport = VerifierTransport(address, self.traffic, self._probe_health if checks_health else None)
        else:
            self._transport = SharedTransport(transport, self.traffic)

    def exchange(self, method: str, path: str, body: bytes | None, headers: Headers, timeout: float) -> httpx.Response:
        """Send a request and return its response, which was read. `timeout` and errors: as in `respond`."""
        with self.respond(method, path, body, headers, timeout) as response:
            response.read()
        return response

    @contextmanager
    def respond(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Headers,
        timeout: float,
        silence: type[DrafterError] = VerifierTimeout,
    ) -> Iterator[httpx.Response]:
        """Send a request; in the block, read its response, which is closed at the end.

        Raises VerifierUnreachable, ConnectionLost, BadReply, and `silence` if nothing came for `timeout` seconds.
        """
        self._path = path
        response: httpx.Response | None = None
        raw = [*self._headers, *headers]
        if body is not None:
            raw.append((b"Content-Length", b"%d" % len(body)))
        limits = {"connect": CONNECT_TIMEOUT, "read": timeout, "write": timeout, "pool": timeout}
        try:
            self.traffic.begin(self._url + path, path, timeout)
            response = self._transport.handle_request(
                httpx.Request(
                    method,
                    self._address_of(path),
                    headers=raw,
                    stream=httpx.ByteStream(body or b""),
                    extensions={"timeout": limits},
                )
            )
            self._check_head(path, response)
            yield response
        except _BROKEN as error:
            raise self._reported(error, path, timeout, silence) from error
        finally:
            if response is not None:
                response.close()
            else:
                self._transport.close()  # the response may still come, as after Ctrl-C

    def events(self, path: str, response: httpx.Response) -> Iterator[tuple[str, bytes]]:
        """Yield the server-sent events of a response from `path` as (name, data). Raises BadReply."""
        name, rest = "", bytearray()  # the beginning of a line
        self.traffic.next_event(path)
        for part in response.iter_bytes():
            rest += part
            if b"\n" not in part:
                continue
            *lines, rest = rest.split(b"\n")
            for line in lines:
                field, _, value = line.rstrip(b"\r").partition(b": ")
                if field == b"event":
                    name = value.decode(errors="replace")
                elif field == b"data":
                    yield name, bytes(value)
                    self.traffic.next_event(path)

    def connect(self) -> None:
        """Open a connection for the next request, where that is possible ahead. Raises VerifierUnreachable."""
        try:
            self._transport.connect(self._address_of("/health"))
        except _BROKEN as error:
            raise self._reported(error, "", CONNECT_TIMEOUT, VerifierTimeout) from error

    def abort(self) -> None:
        """Make the exchange under way fail, and every later one. May be called from any thread.

        An exchange over a transport that was given fails at the next part of its response.
        """
        self._transport.abort()
        if self._prober is not None:
            self._prober.abort()

    def close(self) -> None:
        """Close the connection; one that was given stays open for others."""
        self._transport.close()

    def _check_head(self, path: str, response: httpx.Response) -> None:
        length = response.headers.get("Content-Length", "")
        self.traffic.head(path, response.status_code, int(length) if length.isdecimal() else None)
        if "Content-Encoding" in response.headers:  # a small body may expand to one that takes all memory
            raise BadReply(f"{self._url}{path} sent a compressed response, which was not asked for: is it a verifier?")

    def _reported(self, error: Exception, path: str, timeout: float, silence: type[DrafterError]) -> DrafterError:
        """The error for the user."""
        reason = str(error) or type(error).__name__
        if self._transport.aborted:
            return ConnectionLost(f"the exchange with {self._url} was aborted")
        if isinstance(error, _CANNOT_CONNECT):
            proxy = self._transport.proxy
            through = "" if proxy is None else f" through the proxy {proxy.url.netloc.decode()}"
            return VerifierUnreachable(
                f"no verifier answers at {self._url}{through} ({reason}): is it running, and is the port right?"
            )
        if isinstance(error, _TIMEOUTS):
            return silence(f"{self._url}{path} sent nothing for {timeout:g} s")
        if getattr(error.__cause__, "error_status_hint", None) == 431:  # h11's own limit
            return BadReply(f"{self._url}{path} sent more than 102400 bytes without an end: is it a verifier?")
        return ConnectionLost(f"the connection to {self._url} broke: {reason}")

    def _probe_health(self, waited: float) -> None:
        """Raise ConnectionLost if nothing answers at `/health` over another connection."""
        prober = self._prober = HttpConnection(self._url, checks_health=False)
        try:
            if self._transport.aborted:
                prober.abort()
            prober.exchange("GET", "/health", None, [], _PROBE_TIMEOUT)
        except BadReply:
            pass  # any answer shows that the server is there
        except DrafterError as error:
            raise ConnectionLost(
                f"{self._url}{self._path} sent nothing for {waited:g} s, and /health did not answer: {error}"
            ) from error
        finally:
            self._prober = None
            prober.close()


def _parsed(url: str) -> httpx.URL:
    """The address of a verifier. Raises BadUrl."""
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise BadUrl(f"{url!r} is not the address of a verifier ({error}): write http://host:port") from None
    # httpx quotes spaces and foreign letters in a path, which are mistakes in an address.
    mistaken = " " in url or not url.partition("//")[2].partition("/")[2].isascii()
    if address.scheme not in ("http", "https") or not address.host or (address.port or 0) > 65535 or mistaken:
        raise BadUrl(f"{url!r} is not the address of a verifier: write http://host:port")
    return address
