"""Slow requests: slow bodies, slow heads and silent connections."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from backends.scripted import ScriptedBackend
from specpair.http_service.connection import ConnectionLimits
from specpair.http_service.listening import configured
from tests.specpair.http_service.serving import limited, serving
from tests.verifier_server.conftest import SCRIPT, Serve
from verifier_server.app import create_app
from verifier_server.settings import Settings

HEAD = b"POST /verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def all_received(connection: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
    connection.settimeout(20)
    parts = list(iter(lambda: connection.recv(65536), b""))
    return b"".join(parts)


def one_response(connection: socket.socket) -> bytes:
    """Read one response with a Content-Length. Returns its head."""
    connection.settimeout(20)
    read = b""
    while b"\r\n\r\n" not in read:
        came = connection.recv(1)
        assert came, f"the connection was closed behind {read!r}"
        read += came
    head = read.decode().lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    while length > 0:
        length -= len(connection.recv(length))
    return read


@pytest.mark.parametrize("sent", [b"", b"{", b'{"draft_tokens"'])
@pytest.mark.parametrize("length", [b"Content-Length: 100\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
def test_incomplete_body_times_out(serve: Serve, sent: bytes, length: bytes) -> None:
    live = serve(body_timeout=0.05)
    with socket.create_connection(live.address) as connection:
        chunked = b"%x\r\n%s\r\n" % (len(sent), sent) if sent and length.startswith(b"T") else sent
        connection.sendall(HEAD + length + chunked)
        head, _, body = all_received(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408")
    error = json.loads(body)["error"]
    assert (error["code"], error["type"]) == ("request_timeout", "invalid_request_error")
    assert f"({len(sent)} bytes had come): send it in 0.05 s, or at 32 KiB a second" in error["message"]
    assert live.http.get("/health").status_code == 200


def test_slow_body_gains_no_time(serve: Serve) -> None:
    live = serve(body_timeout=0.2)
    over = threading.Event()
    with socket.create_connection(live.address) as connection:
        connection.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")

        def drip() -> None:
            while not over.wait(0.02):
                try:
                    connection.sendall(b" ")
                except OSError:  # it is closed
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            connection.settimeout(20)
            assert connection.recv(100).startswith(b"HTTP/1.1 408")
        finally:
            over.set()
            dripping.join()


def test_every_path_times_out_alike(serve: Serve) -> None:
    live = serve(body_timeout=0.05)
    for path in (b"/verify", b"/prefill", b"/generate", b"/tokenize", b"/verify/batch"):
        with socket.create_connection(live.address) as connection:
            connection.sendall(HEAD.replace(b"/verify", path) + b"Content-Length: 9\r\n\r\n{")
            assert all_received(connection).startswith(b"HTTP/1.1 408")


@contextmanager
def heads_within(seconds: float) -> Iterator[tuple[str, int]]:
    """A verifier that closes connections without a complete head in time. Yields its address."""
    app = create_app(Settings(backend="scripted"), ScriptedBackend(SCRIPT))
    with serving(configured(app, limited(ConnectionLimits(head_seconds=seconds)))) as address:
        yield address


@pytest.mark.parametrize("sent", [b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
def test_incomplete_head_times_out(sent: bytes) -> None:
    with heads_within(0.25) as address, socket.create_connection(address) as connection:
        connection.sendall(sent)
        head, _, body = all_received(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 Request Timeout")
        assert json.loads(body)["error"]["code"] == "request_timeout"


def test_silent_connection_is_closed() -> None:
    with heads_within(0.05) as address, socket.create_connection(address) as connection:
        assert all_received(connection) == b""


def test_head_timeout_restarts_after_each_response() -> None:
    with heads_within(0.3) as address, socket.create_connection(address) as connection:
        silent = threading.Event()
        for _ in range(2):
            connection.sendall(HEALTH)
            assert one_response(connection).startswith((b"HTTP/1.1 200", b"HTTP/1.1 503"))
            silent.wait(0.4)  # longer than a head may take
        connection.sendall(b"GET /hea")
        assert all_received(connection).startswith(b"HTTP/1.1 408 ")


def test_slow_request_with_a_complete_head_is_served() -> None:
    with heads_within(0.25) as address, socket.create_connection(address) as connection:
        connection.sendall(HEAD + b"Content-Length: 20\r\n\r\n{")
        threading.Event().wait(0.35)  # the head is complete, so the head's deadline no longer applies
        connection.sendall(b" " * 19)
        assert one_response(connection).startswith((b"HTTP/1.1 422", b"HTTP/1.1 503"))
