"""Failed HTTP exchanges: each failure has its own error, says what to do, and leaves the transport usable."""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from drafter_client.errors import ConnectionLost, VerifierTimeout
from drafter_client.http import transport as verifier_transport
from drafter_client.http.connection import HttpConnection
from tests.drafter_client.http.raw_server import CHUNKED, Peer, answering, chunk, echo, read_events

HEADERS = [(b"Content-Type", b"application/json")]
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[1, 2, "
Script = Callable[[Peer], None]


def _ask(sender: HttpConnection, body: bytes | None = b"[1]", timeout: float = 10.0) -> object:
    return sender.exchange("POST", "/verify", body, HEADERS, timeout).json()


def _read(sender: HttpConnection, timeout: float = 10.0) -> list[tuple[str, bytes]]:
    return list(read_events(sender, timeout=timeout))


def _sends(data: bytes, *, then_wait: bool = False) -> Script:
    """Read a request, send `data`, and close; or wait for the client to close."""

    def script(peer: Peer) -> None:
        assert peer.read() is not None
        peer.send(data)
        if then_wait:
            assert peer.read() is None
        else:
            peer.close()

    return script


@pytest.mark.parametrize(
    "sent",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Le", HALF, b"not HTTP at all\r\n\r\n", CHUNKED + b"5\r\n[1"],
    ids=["nothing", "half a head", "half a body", "no HTTP", "half a chunk"],
)
def test_after_a_broken_connection_the_next_request_opens_another(sent: bytes) -> None:
    with answering(_sends(sent), echo) as server, closing(HttpConnection(server.url)) as sender:
        with pytest.raises(ConnectionLost) as caught:
            _ask(sender)
        assert str(caught.value).startswith(f"the connection to {server.url} broke: ")
        assert len(str(caught.value)) > len(f"the connection to {server.url} broke: ")
        assert _ask(sender, b"[7]") == [7]
    assert server.connections == 2


@pytest.mark.parametrize("sent", [b"", HALF], ids=["nothing", "half a body"])
def test_silence_ends_at_the_timeout_and_a_late_response_is_dropped(sent: bytes) -> None:
    with answering(_sends(sent, then_wait=True), echo) as server, closing(HttpConnection(server.url)) as sender:
        with pytest.raises(VerifierTimeout, match=r"/verify sent nothing for 0\.05 s"):
            _ask(sender, timeout=0.05)
        assert _ask(sender, b"[7]") == [7]


@pytest.mark.parametrize("sent", [b"", CHUNKED + chunk(b"event: tokens\ndata: 1\n\n")], ids=["nothing", "one event"])
def test_a_silent_stream_is_a_lost_connection(sent: bytes) -> None:
    """A verifier without an event sends a comment every few seconds."""
    with answering(_sends(sent, then_wait=True), echo) as server, closing(HttpConnection(server.url)) as sender:
        with pytest.raises(ConnectionLost, match=r"/generate sent nothing for 0\.05 s"):
            _read(sender, timeout=0.05)
        assert _ask(sender, b"[7]") == [7]


@pytest.mark.parametrize("cut", range(70))
def test_a_cut_stream_is_not_taken_for_a_whole_one(cut: int) -> None:
    events = chunk(b"event: tokens\ndata: 1\n\n") + chunk(b"event: end\ndata: 2\n\n")
    with (
        answering(_sends(CHUNKED + events[: max(0, len(events) - cut)]), echo) as server,
        closing(HttpConnection(server.url)) as sender,
    ):
        with pytest.raises(ConnectionLost):
            _read(sender)
        assert _ask(sender, b"[7]") == [7]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the test sends a signal to the waiting thread")
@pytest.mark.parametrize("sent", [b"", HALF], ids=["before the answer", "within it"])
def test_ctrl_c_in_an_exchange_leaves_no_response_for_the_next_request(sent: bytes) -> None:
    waiting = threading.get_ident()

    def interrupting(peer: Peer) -> None:
        peer.read()
        peer.send(sent)
        signal.pthread_kill(waiting, signal.SIGINT)
        assert peer.read() is None  # the client closed the connection

    with answering(interrupting, echo) as server, closing(HttpConnection(server.url)) as sender:
        with pytest.raises(KeyboardInterrupt):
            _ask(sender)
        assert _ask(sender, b"[7]") == [7]
    assert server.connections == 2


def _silent_after(sent: bytes, asked: threading.Event) -> Script:
    """Reads a request, sets `asked`, and waits for the client to close."""

    def script(peer: Peer) -> None:
        assert peer.read() is not None
        peer.send(sent)
        asked.set()
        assert peer.read() is None

    return script


@pytest.mark.parametrize(
    "sent",
    [b"", HALF, CHUNKED + chunk(b"event: tokens\ndata: 1\n\n")],
    ids=["before the answer", "within it", "within a stream"],
)
def test_an_exchange_can_be_aborted_from_another_thread(sent: bytes) -> None:
    asked = threading.Event()
    with (
        answering(_silent_after(sent, asked)) as server,
        closing(HttpConnection(server.url)) as sender,
        ThreadPoolExecutor(1) as pool,
    ):
        pending = pool.submit(_read if b"event" in sent else _ask, sender)
        assert asked.wait(10)
        sender.abort()
        with pytest.raises(ConnectionLost):
            pending.result(10)


class _Slow(ThreadingHTTPServer):
    """Answers `/verify` after `probes` requests to `/health`, or never if None; and `/health` with `health`."""

    daemon_threads = True

    def __init__(self, probes: int | None, health: bytes) -> None:
        self.asked, self.probes, self.health = threading.Semaphore(0), probes, health
        self.aborted = threading.Event()
        super().__init__(("127.0.0.1", 0), _SlowHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _SlowHandler(BaseHTTPRequestHandler):
    server: _Slow

    def do_GET(self) -> None:
        self.server.asked.release()
        self.wfile.write(self.server.health)

    def do_POST(self) -> None:
        for _ in range(self.server.probes or 0):
            assert self.server.asked.acquire(timeout=10)
        if self.server.probes is None:
            assert self.rfile.read(3) == b"[1]" and not self.rfile.read(1)
            self.server.aborted.set()
        else:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[7]")

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _slow(probes: int | None, health: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") -> Iterator[_Slow]:
    with _Slow(probes, health) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier_transport, "PROBE_AFTER", 0.02)
    monkeypatch.setattr(verifier_transport, "PROBE_AGAIN", 0.01)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(
    "health", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"]
)
def test_a_slow_response_is_waited_for_while_health_answers(health: bytes) -> None:
    with _slow(3, health) as server, closing(HttpConnection(server.url)) as sender:
        assert _ask(sender) == [7]


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("health", [b"", b"HTTP/1.1 2"])
def test_a_slow_response_is_given_up_where_health_does_not_answer(health: bytes) -> None:
    with _slow(None, health) as server, closing(HttpConnection(server.url)) as sender:
        with pytest.raises(ConnectionLost, match=r"/verify sent nothing for 0\.02 s, and /health did not answer: "):
            _ask(sender)
        assert server.aborted.wait(10)
