"""Exchanges with one verifier, one at a time: requests, responses, events, errors of the network, limits of bytes."""

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, ParamSpec
from weakref import WeakMethod

import httpx
import socksio

from drafter_client.errors import BadReply, BadUrl, ConnectionLost, DrafterError, VerifierTimeout, VerifierUnreachable
from drafter_client.http.addresses import parsed, with_scheme
from drafter_client.http.transport import CONNECT_TIMEOUT, Body, VerifierTransport, shut_down
from drafter_client.http.trust import SYSTEM, Trust
from specpair.protocol.http_reply import MOST_OF_A_HEAD, HeadTooLong

Headers = list[tuple[bytes, bytes]]
P = ParamSpec("P")

PROBE_TIMEOUT = 10.0  # seconds to wait for the probe; a busy verifier on a slow machine may take some of them
# UnicodeError: for an invalid host name.
_CANNOT_CONNECT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, socksio.ProtocolError, UnicodeError)
_BROKEN = (*_CANNOT_CONNECT, httpx.TransportError, OSError)
COMMENT = ":"  # in place of an event's name
MOST = {"/vocabulary": 64 << 20}  # bytes of a response by path; 150,000 tokens take 3 MiB
MOST_ELSEWHERE = 16 << 20  # bytes of another response, or from one event of a stream to the next, comments included
MOST_OF_AN_ERROR = 1 << 20  # bytes of a response with another status than 200
# Bytes that each part of a body takes of the limit beside its own, as many tiny parts need much more memory than their
# bytes, and bytes in addition for those of a long body.
EACH_PART, ALL_PARTS = 16, 1 << 20
SLOW_LINK = 600.0  # seconds that a response may take to arrive, in addition to the timeout for its beginning
# Seconds of comments without an event, by path. A long prompt may queue and be read for long. The stream of a session
# has no bound: it has no events for as long as the client sends no drafts.
EVENT_PATIENCE = {"/generate": 900.0}


class Traffic:
    """Counts the bytes `sent` and `received` in heads and bodies so far, without the framing of chunks, and bounds one
    response after the other, as an endless one would take all memory: the bytes of its body and its duration. The
    transport bounds its head."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.sent = self.received = 0
        self._clock = clock
        self.where = self._late = ""  # `where`: the address of the response
        self._most = self._allowed = 0  # bytes: allowed in all, and still allowed of them
        self._deadline = 0.0

    def begin(self, url: str, path: str, timeout: float) -> None:
        """Bound the duration of a response from `path` at `url`. The transport bounds the wait for each part of the
        response to `timeout` seconds."""
        seconds, bare = timeout + SLOW_LINK, path.partition("?")[0]
        self.where = url + path
        self._most_of_path, self._patience = MOST.get(bare, MOST_ELSEWHERE), EVENT_PATIENCE.get(bare, math.inf)
        self._late = f"took more than {seconds:g} s for one response"
        self._deadline = self._clock() + seconds

    def head(self, status: int, length: int | None) -> None:
        """Bound the body that follows a head, which announces `length` bytes, or none. Raises BadReply if that is too
        long."""
        most = self._most_of_path if status == 200 else MOST_OF_AN_ERROR
        if length is not None and length > most:
            raise self.refused(f"announces {length} bytes, at most {most} are read")
        self._most = self._allowed = most + ALL_PARTS

    def next_event(self) -> None:
        self._late = f"sent comments and no event for {self._patience:g} s"
        self._most = self._allowed = self._most_of_path
        self._deadline = self._clock() + self._patience

    def part(self, received: int) -> None:
        """Count a part of a body, `received` bytes. Raises BadReply if the body is too long."""
        self.received += received
        self._allowed -= received + EACH_PART
        if self._allowed < 0:
            raise self.refused(f"sent more than {self._most} bytes without an end")

    def check_duration(self) -> None:
        if self._clock() > self._deadline:
            raise self.refused(self._late)

    def refused(self, reason: str) -> BadReply:
        return BadReply(f"{self.where} {reason}: is it a verifier?")


class ResponseProbe(NamedTuple):
    """A request over another connection while a response takes long."""

    path: str = "/health"
    headers: Sequence[tuple[bytes, bytes]] = ()
    on_reply: Callable[[bytes], None] = lambda body: None  # takes the body of a reply that is no error


class HttpConnection:
    """Exchanges with the verifier at `url`, which has the form [http(s)://]host[:port][/prefix]. Raises BadUrl.

    Used by one thread at a time. While a response takes long, `/health` is asked over another connection; if that does
    not answer, the connection counts as lost.
    """

    def __init__(
        self,
        url: str,
        transport: httpx.BaseTransport | None = None,
        *,
        at: str = "",
        trust: Trust = SYSTEM,
        checks_health: bool = True,
    ) -> None:
        """`transport`: sends the requests, is shared with others and not closed; none of its responses is probed for.
            None: a connection of its own.
        `at`: the network address to take of those that its name has; empty: any.
        """
        in_full = with_scheme(url)
        address, self._at, self._trust = parsed(in_full), at, trust
        self.url = in_full.rstrip("/")
        self._plain = address.scheme == "http"  # without TLS
        if self._plain and trust.pin:
            raise BadUrl(f"{self.url} is a host that was joined, with a pinned certificate: write https://")
        # Not where ":80" is written, as httpx leaves that out.
        self._without_port = address.port is None and self.url == f"http://{address.netloc.decode()}"
        prefix = self._prefix = address.raw_path.decode().partition("?")[0].rstrip("/")
        self._address_of = functools.lru_cache(16)(lambda path: address.copy_with(raw_path=(prefix + path).encode()))
        self._headers = [(b"Host", address.netloc), (b"Accept-Encoding", b"identity")]
        self._prober: HttpConnection | None = None  # asks `_probe` while a response takes long
        self._probe = ResponseProbe()
        self.traffic = Traffic()
        self._aborted = False
        self._response: httpx.Response | None = None  # the one that is being read
        probe = _weakly(self._ask_probe) if checks_health else None
        self._transport = transport or VerifierTransport(address, _weakly(self._check), probe, at, trust)
        self._own = self._transport if isinstance(self._transport, VerifierTransport) else None

    def exchange(self, method: str, path: str, body: bytes | None, headers: Headers, timeout: float) -> httpx.Response:
        """Send a request and return its response, which was read. `timeout` and errors: as in `respond`."""
        with self.respond(method, path, body, headers, timeout) as response:
            response.read()
        if self._plain and _asks_for_tls(response):
            raise VerifierUnreachable(f"the server at {self.url} speaks TLS: write https:// instead of http://")
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
        patience: float | None = None,
    ) -> Iterator[httpx.Response]:
        """Send a request; in the block, read its response, which is closed at the end.

        `patience`: seconds until VerifierTimeout is raised if no response begins; None: as for its parts.

        Raises VerifierUnreachable, ConnectionLost, BadReply, and `silence` if nothing came for `timeout` seconds.
        """
        rest = timeout, silence
        if patience is not None:
            timeout, silence = patience, VerifierTimeout
        response: httpx.Response | None = None
        sent = [*self._headers, *headers]
        if body is not None:
            sent.append((b"Content-Length", b"%d" % len(body)))
        limits = {"connect": CONNECT_TIMEOUT, "read": timeout, "write": timeout, "pool": timeout}
        request = httpx.Request(
            method,
            self._address_of(path),
            headers=sent,
            stream=httpx.ByteStream(body or b""),  # with a stream, httpx looks for no further headers: much faster
            extensions={"timeout": limits},
        )
        try:
            self.traffic.begin(self.url, path, timeout)
            self._check()
            line = f"{method} {self._prefix}{path} HTTP/1.1"
            self.traffic.sent += _head_size(line, sent) + len(body or b"")
            response = self._response = self._transport.handle_request(request)
            limits["read"], silence = timeout, silence = rest  # looked at when the body is read
            self._read_head(response)
            yield response
        except _BROKEN as error:
            raise self._reported(error, timeout, silence) from error
        finally:
            # Without one, the response may still come, as after Ctrl-C.
            (self if response is None else response).close()
            self._response = None

    def events(self, response: httpx.Response) -> Iterator[tuple[str, bytes]]:
        """Yield the server-sent events of the response under way as (name, data), and comments that say something as
        (`COMMENT`, line). Raises BadReply."""
        name, rest = "", bytearray()  # the beginning of a line
        self.traffic.next_event()
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
                    self.traffic.next_event()
                elif value and not field:
                    yield COMMENT, bytes(line).rstrip(b"\r")

    def when_sent(self, then: Callable[[], None]) -> None:
        """Call `then` in this thread when the next request is sent, before its response is read. Where that cannot be
        seen, call it now. It is not called if nothing can be sent."""
        if self._own is None:
            then()
        else:
            self._own.on_sent = then

    @contextmanager
    def probing(self, probe: ResponseProbe) -> Iterator[None]:
        """A context in which `probe` is asked in place of `/health`."""
        self._probe = probe
        try:
            yield
        finally:
            self._probe = ResponseProbe()

    def connect(self) -> None:
        """Open a connection for the next request, where that is possible ahead. Raises VerifierUnreachable."""
        if self._own is not None:
            try:
                self._own.connect()
            except _BROKEN as error:
                raise self._reported(error, CONNECT_TIMEOUT, VerifierTimeout) from error

    def abort(self) -> None:
        """Make the exchange under way fail, and every later one. May be called from any thread.

        Where a transport that was given does not show the socket of a response, the exchange fails at its next part.
        """
        self._aborted = True  # before the stream is looked for, as the exchange looks at it once it has its stream
        response = self._response
        if self._own is not None:
            shut_down(self._own.stream)
        elif response is not None and not response.is_closed and response.http_version != "HTTP/2":
            shut_down(response.extensions.get("network_stream"))  # over HTTP/2, it would be that of others, too
        if self._prober is not None:
            self._prober.abort()

    def close(self) -> None:
        """Close the connection; one that was given stays open for others."""
        if self._own is not None:
            self._own.close()

    def _check(self) -> None:
        """Raise if the exchange was aborted or takes too long."""
        if self._aborted:
            raise httpx.ReadError("aborted")
        self.traffic.check_duration()

    def _read_head(self, response: httpx.Response) -> None:
        line = f"{response.http_version} {response.status_code} {response.reason_phrase}"
        self.traffic.received += _head_size(line, response.headers.raw)
        length = response.headers.get("Content-Length", "")
        self.traffic.head(response.status_code, int(length) if length.isdecimal() else None)
        if "Content-Encoding" in response.headers:  # a small body may expand to one that takes all memory
            raise self.traffic.refused("sent a compressed response, which was not asked for")
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = Body(self._counted(response.stream), response.stream.close)

    def _counted(self, body: Iterable[bytes]) -> Iterator[bytes]:
        for part in body:
            self.traffic.part(len(part))
            self._check()
            yield part
        self._check()  # without a length, an abort looks like the end

    def _reported(self, error: Exception, timeout: float, silence: type[DrafterError]) -> DrafterError:
        reason = str(error) or type(error).__name__
        if self._aborted:
            return ConnectionLost(f"the exchange with {self.url} was aborted")
        if isinstance(error, _CANNOT_CONNECT):
            proxy = self._own and self._own.proxy
            through = "" if not proxy else f" through the proxy {proxy.url.netloc.decode()}"
            usual = f" Without a port, 80 is asked, and a verifier listens mostly on 8000: {self.url}:8000"
            port = usual if self._without_port else ""
            advice = self._trust.advice(reason) or f"is it running, and is the port right?{port}"
            return VerifierUnreachable(f"no verifier answers at {self.url}{through} ({reason}): {advice}")
        if isinstance(error, httpx.TimeoutException):
            return silence(f"{self.traffic.where} sent nothing for {timeout:g} s")
        cause = error.__cause__ and error.__cause__.__cause__  # of httpcore's error
        if isinstance(cause, HeadTooLong) or getattr(cause, "error_status_hint", None) == 431:  # h11's, with a proxy
            return self.traffic.refused(f"sent more than {MOST_OF_A_HEAD} bytes without an end")
        advice = ""
        if "CERTIFICATE_REQUIRED" in reason:  # the alert of TLS 1.3; TLS 1.2 has none of its own
            advice = ": it asks its clients for a certificate, and none was given (`transport` of `Pair`)"
        if self._plain and not self.traffic.received:  # many servers that expect TLS close it without a word
            advice = ": if it speaks TLS, write https:// instead of http://"
        return ConnectionLost(f"the connection to {self.url} broke: {reason.rstrip('.')}{advice}")

    def _ask_probe(self, waited: float) -> None:
        """Send `_probe` over another connection. Raises ConnectionLost if nothing answers."""
        prober = self._prober = HttpConnection(self.url, at=self._at, trust=self._trust, checks_health=False)
        try:
            if self._aborted:
                prober.abort()
            response = prober.exchange("GET", self._probe.path, None, [*self._probe.headers], PROBE_TIMEOUT)
            if response.status_code == 200:
                self._probe.on_reply(response.content)
        except BadReply:
            pass  # any answer shows that the server is there
        except DrafterError as error:
            silent = f"{self.traffic.where} sent nothing for {waited:g} s"
            raise ConnectionLost(f"{silent}, and {self._probe.path} did not answer: {error}") from error
        finally:
            self._prober = None
            prober.close()


def _weakly(method: Callable[P, None]) -> Callable[P, None]:
    """Call the method by a weak reference. A strong one would be a cycle, left to the garbage collector."""
    found = WeakMethod(method)

    def call(*arguments: P.args, **more: P.kwargs) -> None:
        bound = found()
        if bound is not None:
            bound(*arguments, **more)

    return call


def _head_size(line: str, headers: Headers) -> int:
    return len(line) + 4 + sum([len(name) + len(value) + 4 for name, value in headers])


def _asks_for_tls(response: httpx.Response) -> bool:
    """Whether a server that was asked without TLS demands it: by a redirect, or by its error page."""
    redirects = response.headers.get("Location", "").startswith("https://")
    return redirects or (response.status_code == 400 and b"HTTPS" in response.content)
