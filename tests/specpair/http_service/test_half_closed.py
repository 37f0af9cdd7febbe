"""A client that shuts down its sending side gets its reply; one that is away is noticed, also before its reply."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from specpair.http_service import connection
from tests.specpair.http_service.serving import config_of, serving

PATIENCE = 20.0  # seconds
INTERIM = connection.INTERIM
POST = b"POST /%s HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
LEFT: list[str] = []  # the paths of clients that were noticed to be away
GO = threading.Event()  # replies of `/slow` and `/silent` end when it is set
SEVERAL_PROBES = 0.3  # seconds in which more probes come, if any do


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Replies with the body; `/slow` when `GO` is set, `/never` not at all, and `/stream` until the client is away."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        more = message["more_body"]
    path = scope["path"]
    if path == "/slow":
        await asyncio.to_thread(GO.wait, PATIENCE)
    away = asyncio.ensure_future(receive())
    if path == "/never":
        await away
    if path == "/silent":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"more", "more_body": True})
        await asyncio.to_thread(GO.wait, PATIENCE)
        await send({"type": "http.response.body", "body": body, "more_body": False})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while path == "/stream" and not away.done():
        await send({"type": "http.response.body", "body": b"more", "more_body": True})
        await asyncio.sleep(0.01)
    if away.done():
        LEFT.append(path)
    away.cancel()
    await send({"type": "http.response.body", "body": body, "more_body": False})


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def address(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    with serving(config_of(app, request.param)) as found:
        yield found


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PROBES", (0.1, 0.05))
    GO.clear()
    LEFT.clear()


def _replies(address: tuple[str, int], sent: bytes, first: bytes = b"", seconds: float = 0.0) -> bytes:
    """All that comes after `sent` and the end of the sending side, up to the end of the connection.

    `GO` is set when `first` has come, and `seconds` later.
    """
    with socket.create_connection(address, PATIENCE) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        found = b""
        while first not in found:
            came = client.recv(65536)
            assert came, f"the connection ended behind {found!r}"
            found += came
        time.sleep(seconds)
        GO.set()
        return found + b"".join(iter(lambda: client.recv(65536), b""))


def test_the_reply_comes_and_the_connection_is_closed(address: tuple[str, int]) -> None:
    reply = _replies(address, POST % b"echo" + b"text")
    assert reply.startswith(b"HTTP/1.1 200 ") and reply.endswith(b"text\r\n0\r\n\r\n")


def test_a_reply_that_takes_long_comes_behind_interim_ones(address: tuple[str, int]) -> None:
    replies = _replies(address, POST % b"slow" + b"text", INTERIM, SEVERAL_PROBES)
    interim, found, reply = replies.partition(b"HTTP/1.1 200 ")
    assert found and b"text" in reply
    assert len(interim) > len(INTERIM) and not interim.replace(INTERIM, b"")


def test_a_stream_ends_with_what_its_client_sends(address: tuple[str, int]) -> None:
    with socket.create_connection(address, PATIENCE) as client:
        client.sendall(POST % b"stream" + b"text")
        assert client.recv(12) == b"HTTP/1.1 200"
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536):
            pass
    assert _left("/stream")


def test_http_1_0_gets_no_interim_reply(address: tuple[str, int]) -> None:
    reply = _replies(address, (POST % b"slow").replace(b"1.1", b"1.0") + b"text", seconds=SEVERAL_PROBES)
    assert reply.startswith(b"HTTP/1.1 200 ") and b"text" in reply


@pytest.mark.parametrize("sent", [b"", b"GET /", POST % b"echo" + b"te"], ids=["nothing", "head", "body"])
def test_an_incomplete_request_gets_none(address: tuple[str, int], sent: bytes) -> None:
    assert b" 200 " not in _replies(address, sent)


@pytest.mark.parametrize("path", ["never", "stream"])
def test_a_client_that_is_away_is_noticed(address: tuple[str, int], path: str) -> None:
    with socket.create_connection(address, PATIENCE) as client:
        client.sendall(POST % path.encode() + b"text")
        if path == "stream":
            assert client.recv(12) == b"HTTP/1.1 200"
    assert _left(f"/{path}")


def _left(path: str) -> bool:
    """Whether the client of `path` alone was noticed to be away."""
    end = time.monotonic() + PATIENCE
    while not LEFT and time.monotonic() < end:
        time.sleep(0.01)
    return LEFT == [path]
