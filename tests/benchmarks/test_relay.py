"""The relay that stands in for a network: when blocks arrive, in virtual time, and sockets through a real relay."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from time import perf_counter
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.relay import Link, Wire, relay

ULP = 1e-9  # seconds; sums of floats in another order
HANDED_IN = st.lists(st.tuples(st.floats(0, 0.5), st.integers(0, 100_000)), min_size=1, max_size=30)
PAUSES = st.lists(st.tuples(st.floats(0, 2), st.floats(0.001, 2)), max_size=4)


@st.composite
def links(draw: st.DrawFn, mbit: st.SearchStrategy[float | None] = st.none() | st.floats(1, 1000)) -> Link:
    outages, at = [], 0.0
    for gap, length in draw(PAUSES):
        outages.append((at + gap, length))
        at = sum(outages[-1])
    rtt, jitter, seed = draw(st.floats(0, 300)), draw(st.just(0.0) | st.floats(0.01, 50)), draw(st.integers(0, 9))
    return Link(rtt, jitter, draw(mbit), tuple(outages), seed=seed)


def send(link: Link, handed_in: list[tuple[float, int]]) -> list[tuple[float, int, float]]:
    """(time, size, arrival) of blocks of one connection, each handed in so long after the one before."""
    wire, now, arrival = Wire(link), 0.0, 0.0
    blocks = []
    for pause, size in handed_in:
        now += pause
        arrival = wire.arrival(now, size, not_before=arrival)
        blocks.append((now, size, arrival))
    return blocks


@settings(max_examples=50)
@given(links(), HANDED_IN)
def test_order_is_kept_and_nothing_is_faster_than_the_link(link: Link, handed_in: list[tuple[float, int]]) -> None:
    blocks = send(link, handed_in)
    assert all(earlier <= later for (*_, earlier), (*_, later) in pairwise(blocks))
    assert all(arrival >= now + link.rtt_ms / 2e3 - ULP for now, _, arrival in blocks)


@settings(max_examples=50)
@given(links(mbit=st.floats(1, 1000)), HANDED_IN)
def test_the_bandwidth_is_never_exceeded(link: Link, handed_in: list[tuple[float, int]]) -> None:
    assert link.mbit is not None
    blocks = send(link, handed_in)
    for first, (now, _, _) in enumerate(blocks):
        size = 0
        for _, more, arrival in blocks[first:]:
            size += more
            assert arrival >= now + 8e-6 * size / link.mbit + link.rtt_ms / 2e3 - ULP


@settings(max_examples=50)
@given(links(), HANDED_IN)
def test_nothing_arrives_during_an_outage(link: Link, handed_in: list[tuple[float, int]]) -> None:
    for _, _, arrival in send(link, handed_in):
        assert not any(start <= arrival < start + length - ULP for start, length in link.outages)


@settings(max_examples=50)
@given(links(), st.floats(0, 5), st.floats(0, 2), st.floats(0, 2))
def test_the_links_own_time_stands_still_during_outages_only(link: Link, now: float, one: float, two: float) -> None:
    both = link.after(now, one + two)
    assert link.after(link.after(now, one), two) == pytest.approx(both)
    out = sum(max(0.0, min(both, start + length) - max(now, start)) for start, length in link.outages)
    assert both - now == pytest.approx(one + two + out)


def test_an_undisturbed_block_takes_its_sending_and_half_the_round_trip() -> None:
    wire = Wire(Link(rtt_ms=20, mbit=8))
    assert wire.arrival(1.0, 5000) == pytest.approx(1.0 + 0.005 + 0.010)
    assert wire.arrival(1.0, 1000) == pytest.approx(1.0 + 0.006 + 0.010), "connections share the line"
    assert wire.arrival(2.0, 1000) == pytest.approx(2.0 + 0.001 + 0.010)


def test_what_is_under_way_when_an_outage_begins_arrives_after_it() -> None:
    wire = Wire(Link(rtt_ms=20, outages=((1.0, 0.5),)))
    assert wire.arrival(0.997, 1) == pytest.approx(1.507)
    assert wire.arrival(1.2, 1) == pytest.approx(1.510)


def test_jitter_has_its_mean_and_is_the_same_with_the_same_seed() -> None:
    def delays(seed: int) -> list[float]:
        wire = Wire(Link(jitter_ms=3, seed=seed))
        return [wire.arrival(float(now), 1) - now for now in range(4000)]

    assert delays(1) == delays(1) != delays(2)
    assert 1e3 * sum(delays(1)) / 4000 == pytest.approx(3, rel=0.1)


@pytest.mark.parametrize(
    "bad", [{"rtt_ms": -1}, {"jitter_ms": -1}, {"mbit": 0}, {"outages": ((2, 1), (2.5, 1))}, {"outages": ((1, 0),)}]
)
def test_impossible_links_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"a link has|outages follow"):
        Link(**bad)  # type: ignore[arg-type]


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


@contextmanager
def joined(listener: socket.socket, link: Link) -> Iterator[Ends]:
    with relay(listener.getsockname()[1], link) as url:
        ends = Ends(url, listener)
        with ends.client, ends.server:
            yield ends


def received(end: socket.socket) -> bytes:
    """All that comes until EOF."""
    return b"".join(iter(lambda: end.recv(1 << 20), b""))


def test_all_bytes_pass_both_ways_at_once_and_so_does_each_eof(listener: socket.socket) -> None:
    there, back = (bytes([seed]) + bytes(range(251)) * 24_000 for seed in (1, 2))  # more than may wait in a relay
    with joined(listener, Link(rtt_ms=2, jitter_ms=0.2, seed=3)) as ends:

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


def test_one_direction_goes_on_when_the_other_has_ended(listener: socket.socket) -> None:
    with joined(listener, Link(rtt_ms=1, mbit=100)) as ends:
        ends.client.sendall(b"a question")
        ends.client.shutdown(socket.SHUT_WR)
        assert received(ends.server) == b"a question"
        for part in (b"an ", b"answer"):
            ends.server.sendall(part)
        ends.server.close()
        assert received(ends.client) == b"an answer"


def test_a_reset_passes_on(listener: socket.socket) -> None:
    with joined(listener, Link(rtt_ms=1)) as ends:
        ends.client.sendall(b"hello")
        assert ends.server.recv(5) == b"hello"
        ends.server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ends.server.close()
        with pytest.raises(ConnectionResetError):
            ends.client.recv(1)


def test_a_round_trip_is_not_faster_than_the_link_and_the_first_waits_for_the_handshake(
    listener: socket.socket,
) -> None:
    with relay(listener.getsockname()[1], Link(rtt_ms=10)) as url:
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


def see_the_cut(ends: Ends) -> None:
    with ends.client, ends.server:
        for end in (ends.client, ends.server):
            with pytest.raises(ConnectionResetError):
                end.recv(1)


def test_a_cut_resets_both_ends_and_refuses_new_ones(listener: socket.socket) -> None:
    with relay(listener.getsockname()[1], Link(outages=((0.3, 1e6),), cut=True)) as url:
        see_the_cut(Ends(url, listener))
        with pytest.raises(ConnectionRefusedError):
            Ends(url, listener)


def test_after_a_cut_connections_pass_again(listener: socket.socket) -> None:
    with relay(listener.getsockname()[1], Link(outages=((0.3, 0.02),), cut=True)) as url:
        see_the_cut(Ends(url, listener))
        ends = None
        while ends is None:
            with suppress(ConnectionRefusedError):
                ends = Ends(url, listener)
        with ends.client, ends.server:
            ends.client.sendall(b"back")
            assert ends.server.recv(4) == b"back"


def connect_and_read(client: socket.socket, url: str) -> None:
    there = urlsplit(url)
    client.connect((there.hostname, there.port))
    client.recv(1)


def test_a_server_that_is_not_there_means_a_reset(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    with relay(port, Link()) as url, socket.socket() as client:
        client.settimeout(10)
        with pytest.raises(ConnectionResetError):
            connect_and_read(client, url)


def test_a_url_keeps_its_path(listener: socket.socket) -> None:
    with relay(f"http://127.0.0.1:{listener.getsockname()[1]}/path", Link()) as url:
        assert urlsplit(url).path == "/path"


def test_a_relay_that_cannot_start_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="the relay did not start"), relay("http://127.0.0.1:port", Link()):
        pass
    assert "port" in capfd.readouterr().err
