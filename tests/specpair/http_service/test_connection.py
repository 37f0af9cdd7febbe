"""What a connection takes: heads without end, requests ahead of replies, offers of upgrades, replies nobody reads."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, repeat
from typing import Any

import pytest

from backends.scripted import ScriptedBackend
from specpair.http_service.connection import ConnectionLimits
from specpair.http_service.listening import configured
from tests.specpair.http_service.serving import config_of, limited, serving
from verifier_server.app import create_app
from verifier_server.settings import Settings

GET = b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = b"POST /verify HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
LIMIT = ConnectionLimits().head_bytes
PATIENCE = 20.0  # seconds


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with serving(configured(create_app(Settings(backend="scripted"), ScriptedBackend()))) as found:
        yield found


def sent_to(address: tuple[str, int], parts: Iterator[bytes], most: int = 64 * LIMIT) -> tuple[int, bytes]:
    """Send `parts` until the server closes the connection. Returns how many bytes were sent, and the reply.

    Raises AssertionError if it takes `most` bytes.
    """
    sent = 0
    with socket.create_connection(address, PATIENCE) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        with suppress(ConnectionError):
            for part in parts:
                connection.sendall(part)
                sent += len(part)
                assert sent < most, "the server takes it without end"
        reply = b""
        with suppress(ConnectionError):
            while received := connection.recv(65536):
                reply += received
    return sent, reply


ENDLESS = {
    "short headers": (GET, b"a:\r\n" * 256),
    "one header line": (GET + b"a: ", b"a" * 1024),
    "one header name": (GET, b"a" * 1024),
    "request line": (b"GET /", b"a" * 1024),
    "method": (b"", b"A" * 1024),
    "empty lines": (b"", b"\r\n" * 512),
}


@pytest.mark.parametrize(("begin", "more"), ENDLESS.values(), ids=ENDLESS)
def test_a_head_without_end_is_refused(address: tuple[str, int], begin: bytes, more: bytes) -> None:
    _, reply = sent_to(address, chain([begin], repeat(more)))
    if begin:  # without a request, the parser's own 400 may come first
        head, _, body = reply.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large")
        error = json.loads(body)["error"]
        assert error["code"] == "head_too_large"
        assert "more than 32768 bytes or 100 headers" in error["message"]


@pytest.mark.parametrize(
    "head",
    [GET + b"a: b\r\n" * 100, GET + b"a: " + b"b" * LIMIT, GET.replace(b"live", b"live?" + b"b" * LIMIT)],
    ids=["headers", "bytes", "query"],
)
def test_a_complete_head_beyond_the_limits_is_refused(address: tuple[str, int], head: bytes) -> None:
    _, reply = sent_to(address, iter([head + b"\r\n\r\n"]))
    assert reply.startswith(b"HTTP/1.1 431 ") and b"connection: close" in reply


@pytest.mark.parametrize(
    "head", [GET + b"a: b\r\n" * 99, GET + b"a: " + b"b" * (LIMIT - 100)], ids=["headers", "bytes"]
)
def test_a_head_within_the_limits_is_served(address: tuple[str, int], head: bytes) -> None:
    with socket.create_connection(address, PATIENCE) as connection:
        for _ in range(3):  # each head counts for itself
            connection.sendall(head.rstrip(b"\r\n") + b"\r\n\r\n")
            reply = connection.recv(65536)
            while not reply.endswith(b'{"status":"alive"}\n'):  # it may come in parts
                part = connection.recv(65536)
                assert part, reply
                reply += part
            assert reply.startswith(b"HTTP/1.1 200 OK") and reply.count(b"HTTP/1.1") == 1


BETWEEN = {
    "chunk extension": b"1;" + b"a" * 4096,
    "short trailers": b"0\r\n" + b"a:\r\n" * 1024,
    "one trailer": b"0\r\na: ",
}


@pytest.mark.parametrize("begin", BETWEEN.values(), ids=BETWEEN)
def test_what_is_between_and_behind_chunks_has_an_end(address: tuple[str, int], begin: bytes) -> None:
    more = b"a:\r\n" * 256 if begin.endswith(b"\n") else b"a" * 1024
    sent_to(address, chain([CHUNKED + begin], repeat(more)))


def test_a_long_body_in_many_chunks_is_no_long_head(address: tuple[str, int]) -> None:
    chunks = [b"1;x=y\r\n \r\n"] * 20_000 + [b"2\r\n{}\r\n0\r\n\r\n"]
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(CHUNKED + b"".join(chunks))
        assert connection.recv(65536).startswith(b"HTTP/1.1 422 ")


@pytest.mark.parametrize("behind", [chain([b"GET / HTTP/1.1\r\n"], repeat(b"a:\r\n" * 256))], ids=["head"])
def test_what_is_sent_ahead_of_a_reply_has_an_end(address: tuple[str, int], behind: Iterator[bytes]) -> None:
    first = b"POST /verify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}"
    endless = b"".join(part for part, _ in zip(behind, range(512), strict=False))
    _, reply = sent_to(address, iter([first + endless, *[b"a" * 1024] * 512]))
    assert reply.startswith(b"HTTP/1.1 422 ")


BEGUN = threading.Event()  # the reply to a POST has begun, and ends when `GO` is set
GO = threading.Event()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Replies with the path; to a POST in two parts, the second once `GO` is set and the body has come."""
    path = scope["path"].encode()
    length = b"%d" % (len(path) + 5 * (scope["method"] == "POST"))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    if scope["method"] == "POST":
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        BEGUN.set()
        await asyncio.to_thread(GO.wait, PATIENCE)
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
    await send({"type": "http.response.body", "body": path})


def replies(head: bytes, until_begun: bytes = b"") -> list[tuple[int, bytes]]:
    """Status and body of each reply to what is sent at once; `until_begun`: before it, and its reply has begun."""
    for event in (BEGUN, GO):
        event.clear()
    came = b""
    with serving(config_of(echo)) as address, socket.create_connection(address, PATIENCE) as connection:
        if until_begun:
            connection.sendall(until_begun)
            assert BEGUN.wait(PATIENCE)
        connection.sendall(head)
        GO.set()
        with suppress(ConnectionError):
            while part := connection.recv(65536):
                came += part
    found = list[tuple[int, bytes]]()
    while came:
        top, _, came = came.partition(b"\r\n\r\n")
        length = int(top.lower().partition(b"content-length: ")[2].split()[0])
        found.append((int(top.split()[1]), came[:length]))
        came = came[length:]
    return found


POST = b"POST /posted HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
OTHER = b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n"
DONE = [(200, b"first/posted"), (200, b"/other")]


BAD = {
    "no HTTP": (b"garbage\r\n\r\n", 400),
    "no HTTP, no end": (b"garbage", 400),
    "bare line feeds": (b"GET / HTTP/1.1\nHost: x\n\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "CONNECT": (b"CONNECT other:80 HTTP/1.1\r\nHost: other:80\r\n\r\n", 400),
    "length": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
    "two lengths": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    "chunks and length": (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    "large": (b"GET / HTTP/1.1\r\nHost: x\r\na: " + b"b" * 2 * LIMIT + b"\r\n\r\n", 431),
}


@pytest.mark.parametrize(("behind", "status"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("begun", [True, False], ids=["while a reply is sent", "at once"])
def test_a_bad_request_is_refused_behind_the_replies_before_it(behind: bytes, status: int, begun: bool) -> None:
    sent = OTHER + behind
    *served, (refused, body) = replies(sent, POST) if begun else replies(POST + sent)
    assert served == DONE
    assert refused == status and "message" in json.loads(body)["error"]


LAST = OTHER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
CHUNKS = b"POST /posted HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"


def answers(sent: bytes, piece: int) -> list[bytes]:
    """The bodies of the replies to requests that are sent in pieces of this size."""
    came = b""
    GO.set()
    with serving(config_of(echo)) as address, socket.create_connection(address, PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(sent), piece):
            connection.sendall(sent[at : at + piece])
        while part := connection.recv(65536):
            came += part
    return [part.partition(b"\r\n\r\n")[2] for part in came.split(b"HTTP/1.1 200 OK")[1:]]


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 4096])
def test_requests_ahead_of_replies_are_answered_in_order_however_they_are_cut(piece: int) -> None:
    bodies = answers((CHUNKS + OTHER * 3 + POST) * 3 + LAST, piece)
    assert bodies == ([b"first/posted"] + [b"/other"] * 3 + [b"first/posted"]) * 3 + [b"/other"]


OFFERS = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n",
    "WebSocket": b"Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Key: eA==\r\n",
    "TLS, in odd cases": b"UPGRADE: TLS/1.0\r\nCONNECTION: uPGRADE\r\n",
}


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
@pytest.mark.parametrize("request_of", [POST, CHUNKS, OTHER], ids=["length", "chunks", "no body"])
@pytest.mark.parametrize("piece", [3, 4096])
def test_an_offer_of_an_upgrade_is_ignored(offer: bytes, request_of: bytes, piece: int) -> None:
    bodies = answers(request_of.replace(b"Host: x\r\n", b"Host: x\r\n" + offer) * 2 + LAST, piece)
    assert len(bodies) == 3 and bodies[-1] == b"/other"


CUT = b"POST /cut HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_request_whose_body_cannot_be_read_gets_one_reply() -> None:
    *served, (status, _) = replies(POST + CUT + b"x\r\n")
    assert served == DONE[:1] and status == 400
    assert replies(b"x\r\n", CUT) == [(200, b"first")]  # which had begun


def test_a_reply_that_nobody_reads_is_ended() -> None:
    ended = threading.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        with suppress(asyncio.CancelledError):
            await receive()  # the request
            await send({"type": "http.response.start", "status": 200, "headers": []})
            listening = asyncio.ensure_future(receive())
            while not listening.done():
                await send({"type": "http.response.body", "body": b"a" * 65536, "more_body": True})
            ended.set()

    with (
        serving(config_of(endless, http=limited(ConnectionLimits(stalled_seconds=0.05)))) as address,
        socket.create_connection(address, PATIENCE) as connection,
    ):
        connection.sendall(GET + b"\r\n")
        assert ended.wait(PATIENCE)


async def whole(scope: Any, receive: Any, send: Any) -> None:
    """Replies with `whole`; to `/parts`, with two parts, the second of which comes once the first one is confirmed."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    if scope["path"] == "/parts":
        await send({"type": "http.response.body", "body": b"who", "more_body": True})
        while (message := await receive()).get("body") != b"on":
            assert message["type"] == "http.request"
        await send({"type": "http.response.body", "body": b"le"})
    else:
        await send({"type": "http.response.body", "body": b"whole"})


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_response_comes_in_one_piece(loop: str) -> None:
    with serving(config_of(whole, loop)) as address, socket.create_connection(address, 20.0) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(20):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            reply = connection.recv(65536)
            assert reply.startswith(b"HTTP/1.1 200 ") and reply.endswith(b"\r\n\r\nwhole")
        connection.sendall(b"POST /parts HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
        assert connection.recv(65536).endswith(b"\r\n\r\nwho")
        connection.sendall(b"on")
        assert connection.recv(65536) == b"le"
