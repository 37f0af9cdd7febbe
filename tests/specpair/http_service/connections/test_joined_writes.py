"""A response is sent at once as a whole, and a stream without waiting for more."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import pytest

from specpair.http_service.connections.joined_writes import JoinedWrites
from tests.specpair.http_service.serving import guarded_config, serving

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Transport:
    """Remembers what is done to it."""

    def __init__(self) -> None:
        self.seen: list[bytes | str] = []
        self.lost = False

    def write(self, data: bytes) -> None:
        self.seen.append(data)

    def close(self) -> None:
        self.seen.append("closed")

    def abort(self) -> None:
        self.seen.append("aborted")

    def is_closing(self) -> bool:
        return self.lost or "closed" in self.seen


class Turns:
    """The turns of an event loop."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []
        self.transport = Transport()
        self.joined = JoinedWrites(cast(asyncio.Transport, self.transport), self.calls.append)

    def turn(self) -> None:
        calls, self.calls[:] = self.calls[:], []
        for call in calls:
            call()


def test_a_head_is_sent_with_what_follows() -> None:
    turns = Turns()
    for _ in range(2):
        turns.joined.write(HEAD)
        turns.joined.write(b"body")
    assert turns.transport.seen == [HEAD + b"body"] * 2
    turns.turn()
    assert turns.transport.seen == [HEAD + b"body"] * 2 and not turns.calls


def test_a_head_waits_for_the_next_turn_only_and_events_do_not_wait() -> None:
    turns = Turns()
    turns.joined.write(HEAD)
    assert turns.transport.seen == []
    turns.turn()
    for data in (b"event", b"another"):
        turns.joined.write(data)
    assert turns.transport.seen == [HEAD, b"event", b"another"] and not turns.calls


def test_what_is_held_is_sent_before_the_connection_is_closed() -> None:
    turns = Turns()
    turns.joined.write(HEAD)
    turns.joined.close()
    turns.turn()
    assert turns.transport.seen == [HEAD, "closed"]


def test_an_aborted_connection_sends_nothing_first() -> None:
    turns = Turns()
    turns.joined.write(HEAD)
    turns.joined.abort()
    assert turns.transport.seen == ["aborted"]


def test_what_is_held_when_the_client_leaves_is_dropped() -> None:
    turns = Turns()
    turns.joined.write(HEAD)
    turns.transport.lost = True
    turns.turn()
    assert turns.transport.seen == []


async def app(scope: Any, receive: Any, send: Any) -> None:
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


@pytest.mark.parametrize(("parser", "loop"), [("httptools", "uvloop"), ("h11", "asyncio")])
def test_a_response_comes_in_one_piece(parser: str, loop: str) -> None:
    with serving(guarded_config(app, parser, loop)) as address, socket.create_connection(address, 20.0) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(20):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            reply = connection.recv(65536)
            assert reply.startswith(b"HTTP/1.1 200 ") and reply.endswith(b"\r\n\r\nwhole")
        connection.sendall(b"POST /parts HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
        assert connection.recv(65536).endswith(b"\r\n\r\nwho")
        connection.sendall(b"on")
        assert connection.recv(65536) == b"le"
