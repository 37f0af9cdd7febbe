"""Slow requests: slow bodies, slow heads and silent connections."""

import json
import socket
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


def all_received(connection: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
    connection.settimeout(20)
    parts = list(iter(lambda: connection.recv(65536), b""))
    return b"".join(parts)


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
