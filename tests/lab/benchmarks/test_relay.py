"""The relay that stands in for a network: sockets through a real relay."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from time import perf_counter
from urllib.parse import urlsplit

import pytest

from lab.benchmarks.harness.relay import relay


class Ends:
    """Both ends of one connection through a relay, with a limit on every wait."""

    def __init__(self, url: str, listener: socket.socket) -> None:
        there = urlsplit(url)
        self.client = socket.create_connection((there.hostname, there.port), timeout=10)
        self.server, _ = listener.accept()
        self.server.settimeout(10)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        yield listening


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def joined(listener: socket.socket, rtt_ms: float) -> Iterator[Ends]:
    with relay(url_of(listener), rtt_ms) as url:
        ends = Ends(url, listener)
        with ends.client, ends.server:
            yield ends


def received(end: socket.socket) -> bytes:
    """All that comes until EOF."""
    return b"".join(iter(lambda: end.recv(1 << 20), b""))


def test_all_bytes_pass_both_ways_at_once_and_so_does_each_eof(listener: socket.socket) -> None:
    there, back = (bytes([seed]) + bytes(range(251)) * 24_000 for seed in (1, 2))  # more than may wait in a relay
    with joined(listener, 2.0) as ends:

        def send(end: socket.socket, data: bytes) -> threading.Thread:
            def run() -> None:
                end.sendall(data)
                end.shutdown(socket.SHUT_WR)

            thread = threading.Thread(target=run)
            thread.start()
            return thread

        senders = [send(ends.client, there), send(ends.server, back)]
        results: list[bytes] = []
        reader = threading.Thread(target=lambda: results.append(received(ends.server)))
        reader.start()
        assert received(ends.client) == back
        for thread in (reader, *senders):
            thread.join(10)
            assert not thread.is_alive()
        assert results == [there]


def test_a_reset_passes_on(listener: socket.socket) -> None:
    with joined(listener, 1.0) as ends:
        ends.client.sendall(b"hello")
        assert ends.server.recv(5) == b"hello"
        ends.server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ends.server.close()
        with pytest.raises(ConnectionResetError):
            ends.client.recv(1)


def test_a_round_trip_is_not_faster_than_the_link_and_the_first_waits_for_the_handshake(
    listener: socket.socket,
) -> None:
    with relay(url_of(listener), 10.0) as url:
        times = [perf_counter()]
        ends = Ends(url, listener)
        with ends.client, ends.server:
            for _ in range(3):
                ends.client.sendall(b"ping")
                ends.server.sendall(ends.server.recv(4))
                assert ends.client.recv(4) == b"ping"
                times.append(perf_counter())
        first, *others = [later - earlier for earlier, later in pairwise(times)]
        assert first >= 0.020
        assert min(others) >= 0.010


def test_a_relay_that_cannot_start_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="the relay did not start"), relay("http://127.0.0.1:port", 0.0):
        pass
    assert "port" in capfd.readouterr().err
