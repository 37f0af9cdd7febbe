"""Successful HTTP exchanges: kept-alive connections, counted and bounded bytes, streams of events."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import repeat

import httpx
import pytest
from httpcore._backends.sync import SyncStream

from drafter_client.errors import BadReply, BadUrl, VerifierUnreachable
from drafter_client.http import connection as traffic
from drafter_client.http.connection import HttpConnection
from tests.drafter_client.http.raw_server import CHUNKED, Peer, answering, chunk, echo, read_events

HEADERS = [(b"Content-Type", b"application/json")]


def _ask(sender: HttpConnection, body: bytes | None = b"[1]", timeout: float = 10.0) -> object:
    return sender.exchange("POST", "/x", body, HEADERS, timeout).json()


def test_a_request_is_sent_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[bytes] = []
    send = SyncStream.write

    def record(self: SyncStream, data: bytes, timeout: float | None = None) -> None:
        pieces.append(data)
        send(self, data, timeout)

    monkeypatch.setattr(SyncStream, "write", record)
    with answering(echo) as server, closing(HttpConnection(server.url)) as sender:
        _ask(sender, b"[1,2]")
        sender.exchange("GET", "/health", None, [], 10.0)
    host = server.url.removeprefix("http://").encode()
    assert pieces == [
        b"POST /x HTTP/1.1\r\nHost: " + host + b"\r\nAccept-Encoding: identity\r\nContent-Type: application/json\r\n"
        b"Content-Length: 5\r\n\r\n[1,2]",
        b"GET /health HTTP/1.1\r\nHost: " + host + b"\r\nAccept-Encoding: identity\r\n\r\n",
    ]


def test_every_byte_is_counted_in_both_directions() -> None:
    with answering(echo) as server, closing(HttpConnection(server.url)) as sender:
        _ask(sender, b'{"draft_tokens":[1,2,3]}')
        _ask(sender, b"[" + b"1," * 20_000 + b"1]")
        sender.exchange("GET", "/health", None, [], 10.0)
        counted = sender.traffic.sent, sender.traffic.received
    assert counted == (server.received, server.sent)
    assert server.sent > 40_000


def test_a_stream_closed_early_is_not_read_by_the_next_request() -> None:
    def endless(peer: Peer) -> None:
        peer.read()
        peer.send(CHUNKED + chunk(b"event: tokens\ndata: 1\n\n") + chunk(b"event: tokens\ndata: 2\n\n"))
        peer.read()

    with answering(endless, echo) as server, closing(HttpConnection(server.url)) as sender:
        with closing(read_events(sender)) as events:  # type: ignore[type-var]
            assert next(events) == ("tokens", b"1")
        assert _ask(sender, b"[7]") == [7]
    assert server.connections == 2


@pytest.mark.parametrize("streamed", [False, True])
def test_a_connection_that_the_server_will_close_is_replaced(streamed: bool) -> None:
    def last(peer: Peer) -> None:
        peer.read()
        peer.reply(b"event: end\ndata: 1\n\n" if streamed else b"1", "200 OK", "Connection: close")

    with answering(last, echo) as server, closing(HttpConnection(server.url)) as sender:
        if streamed:
            assert list(read_events(sender)) == [("end", b"1")]
        else:
            assert _ask(sender) == 1
        assert _ask(sender, b"[7]") == [7]
    assert server.connections == 2


@pytest.mark.parametrize(
    "url",
    [
        *("http:127.0.0.1", "http:/localhost", "ftp://127.0.0.1", "http://", "http://host:port", "https:8000"),
        *("http://[::1", "http://a b:80", "http://127.0.0.1/a path", "http://127.0.0.1/\n", "http://127.0.0.1/\u00e9"),
    ],
)
def test_an_invalid_address_is_refused_by_name(url: str) -> None:
    with pytest.raises(BadUrl) as caught:
        HttpConnection(url)
    assert repr(url) in str(caught.value) and "http://host:port" in str(caught.value)


@pytest.mark.parametrize("path", ["", "/", "/base/"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_address_without_a_scheme_is_one_of_http(host: str, path: str) -> None:
    with answering(echo) as server, closing(HttpConnection(f"{host}:{server.port}{path}")) as sender:
        _ask(sender)
    assert sender.url == f"http://{host}:{server.port}{path}".rstrip("/")
    assert server.requests[0].line == f"POST {path.rstrip('/')}/x HTTP/1.1"


@pytest.mark.parametrize("port", [0, 65536, 99999])
@pytest.mark.parametrize("scheme", ["", "http://"])
def test_a_port_that_does_not_exist_is_named_with_the_range(scheme: str, port: int) -> None:
    with pytest.raises(BadUrl, match=rf"\(port {port} is not between 1 and 65535\): write http://host:port"):
        HttpConnection(f"{scheme}127.0.0.1:{port}")


JSON = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TO_THE_END = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
BLOCK = 65536


def flood(head: bytes, blocks: Iterator[bytes]) -> Callable[[Peer], None]:
    """A server that sends `head`, and then blocks until its client has gone."""

    def script(peer: Peer) -> None:
        assert peer.read() is not None
        with suppress(OSError):  # the client leaves, as it should
            peer.send(head)
            for block in blocks:
                peer.send(block)

    return script


def refusal(head: bytes, blocks: Iterator[bytes], *, path: str = "/verify", stream: bool = False) -> str:
    """The client's error for such a response; its memory stays below a few times the limit."""
    with answering(flood(head, blocks)) as server, closing(HttpConnection(server.url)) as sender:
        tracemalloc.start()
        try:
            with pytest.raises(BadReply) as caught:
                ask(sender, path, stream)
            assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
        finally:
            tracemalloc.stop()
        assert "\n" not in str(caught.value)
        return str(caught.value).replace(server.url, "URL")


def ask(sender: HttpConnection, path: str, stream: bool) -> None:
    if stream:
        list(read_events(sender, path))
    else:
        sender.exchange("POST", path, b"{}", [], 10.0)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits."""
    monkeypatch.setattr(traffic, "MOST", {"/vocabulary": 4 * BLOCK})
    monkeypatch.setattr(traffic, "MOST_ELSEWHERE", 2 * BLOCK)
    monkeypatch.setattr(traffic, "MOST_OF_AN_ERROR", BLOCK)
    monkeypatch.setattr(traffic, "ALL_PARTS", BLOCK)


def test_an_excessive_content_length_is_refused_before_reading() -> None:
    said = refusal(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n", iter(()))
    assert said == "URL/verify announces 10000000000 bytes, at most 16777216 are read: is it a verifier?"


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(
    ("head", "block", "stream"),
    [
        (JSON, chunk(b"x" * BLOCK), False),
        (JSON, b"1\r\n1\r\n", False),
        (TO_THE_END, b"x" * BLOCK, False),
        (JSON + chunk(b"{}") + b"0\r\n", b"Trailer: x\r\n", False),
        (b"HTTP/1.1 200 OK\r\n", b"X: " + b"x" * 1000 + b"\r\n", False),
        (b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(b"x" * BLOCK), False),
        (b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(b"x" * BLOCK), True),
        (CHUNKED + chunk(b"data: "), chunk(b"x" * BLOCK), True),
        (TO_THE_END + b"data: ", b"x" * BLOCK, True),
        (CHUNKED, chunk(b":" + b"x" * 1000 + b"\n"), True),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", False),
    ],
    ids=[
        "chunks",
        "tiny chunks",
        "no length",
        "trailers",
        "head",
        "error",
        "error of a stream",
        "line",
        "raw",
        "comments",
        "continue",
    ],
)
def test_an_endless_response_is_refused(head: bytes, block: bytes, stream: bool) -> None:
    said = refusal(head, repeat(block), path="/generate", stream=stream)
    assert said.startswith("URL/generate sent more than ") and said.endswith(" bytes without an end: is it a verifier?")


@pytest.mark.usefixtures("_small")
def test_a_long_stream_of_short_events_is_read() -> None:
    events = [chunk(b"event: tokens\ndata: 1\n\n" + (b":" + b"x" * 1000 + b"\n") * 50) for _ in range(20)]
    script = flood(CHUNKED, iter([*events, chunk(b"")]))
    with answering(script) as server, closing(HttpConnection(server.url)) as sender:
        assert list(read_events(sender)) == [("tokens", b"1")] * 20


def test_endless_comments_end_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "EVENT_PATIENCE", {"/generate": 0.2})
    said = refusal(CHUNKED, repeat(chunk(b":\n\n")), path="/generate", stream=True)
    assert said == "URL/generate sent comments and no event for 0.2 s: is it a verifier?"


@pytest.mark.parametrize(
    ("head", "block"),
    [
        (JSON, chunk(b" ")),
        (JSON, b"1;" + b"x" * 1000 + b"\r\n1\r\n"),  # more framing than body
    ],
    ids=["body", "framing"],
)
def test_an_endlessly_slow_response_is_given_up(head: bytes, block: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "SLOW_LINK", -9.9)
    said = refusal(head, repeat(block))
    assert said == "URL/verify took more than 0.1 s for one response: is it a verifier?"


@pytest.mark.parametrize(
    "reply",
    [
        httpx.Response(301, headers={"Location": "https://bigbox/x"}),
        httpx.Response(400, content=b"The plain HTTP request was sent to HTTPS port"),
    ],
)
def test_a_server_that_demands_tls_is_named(reply: httpx.Response) -> None:
    sender = HttpConnection("http://bigbox", httpx.MockTransport(lambda _: reply))
    with closing(sender), pytest.raises(VerifierUnreachable, match="http://bigbox speaks TLS: write https://"):
        _ask(sender)


@pytest.mark.parametrize(
    ("url", "hinted"), [("bigbox", True), ("http://bigbox/", True), ("bigbox:80", False), ("https://bigbox", False)]
)
def test_an_address_without_a_port_is_told_the_verifiers(url: str, hinted: bool) -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    sender = HttpConnection(url, httpx.MockTransport(refuse))
    with closing(sender), pytest.raises(VerifierUnreachable) as caught:
        _ask(sender)
    assert ("Without a port, 80 is asked" in str(caught.value)) is hinted
