"""An endless response of a hostile verifier is refused in one line, before it has taken memory or time."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import repeat

import pytest

from drafter_client.errors import BadReply
from drafter_client.http import connection as traffic
from drafter_client.http.connection import HttpConnection
from tests.drafter_client.http.raw_server import CHUNKED, Peer, answering, chunk, read_events

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
