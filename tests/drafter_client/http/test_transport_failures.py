"""HTTP exchanges that go wrong: each failure has its own name, says what to do, and spoils nothing after it."""

import http.client
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from drafter_client.errors import BadReply, ConnectionLost, DrafterError, VerifierTimeout, VerifierUnreachable
from drafter_client.http import transport
from drafter_client.http.transport import HttpTransport
from tests.drafter_client.http.raw_server import CHUNKED, Peer, answering, chunk, echo

HEADERS = {"Content-Type": "application/json"}
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[1, 2, "
Script = Callable[[Peer], None]


def _ask(sender: HttpTransport, body: bytes | None = b"[1]", timeout: float = 10.0) -> object:
    return sender.exchange("POST", "/verify", body, HEADERS, timeout).body


def _read(sender: HttpTransport, timeout: float = 10.0) -> list[tuple[str, object]]:
    return list(sender.stream("/generate", b"{}", HEADERS, timeout))


def _says(data: bytes, *, then_wait: bool = False) -> Script:
    """Take a request, send `data`, and close; or wait for the client to close."""

    def script(peer: Peer) -> None:
        assert peer.read() is not None
        peer.send(data)
        if then_wait:
            assert peer.read() is None
        else:
            peer.close()

    return script


def test_brackets_without_end_are_not_json() -> None:
    says = _says(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000)
    with (
        answering(says) as server,
        closing(HttpTransport(server.url)) as sender,
        pytest.raises(BadReply, match="not JSON"),
    ):
        _ask(sender)


def test_the_name_of_an_event_may_be_no_text() -> None:
    events = chunk(b"event: \xff\ndata: 1\n\n") + chunk(b"")
    with answering(_says(CHUNKED + events)) as server, closing(HttpTransport(server.url)) as sender:
        assert _read(sender) == [("\ufffd", 1)]


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


def test_where_nobody_listens_the_error_says_so_and_what_to_check() -> None:
    url = f"http://127.0.0.1:{_free_port()}"
    with closing(HttpTransport(url)) as sender, pytest.raises(VerifierUnreachable) as caught:
        _ask(sender)
    assert str(caught.value).startswith(f"no verifier answers at {url} (")
    assert str(caught.value).endswith("is it running, and is the port right?")


def test_a_host_that_cannot_be_one_is_unreachable_too() -> None:
    with closing(HttpTransport("http://.invalid")) as sender, pytest.raises(VerifierUnreachable):
        _ask(sender)


def test_an_unreachable_proxy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    port = _free_port()
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
    sender = HttpTransport("http://verifier.invalid")
    with pytest.raises(VerifierUnreachable, match=f"through the proxy 127.0.0.1:{port}"):
        _ask(sender)


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Le", HALF, b"not HTTP at all\r\n\r\n", CHUNKED + b"5\r\n[1"],
    ids=["nothing", "half a head", "half a body", "no HTTP", "half a chunk"],
)
def test_a_connection_that_breaks_is_lost_and_the_next_request_opens_another(said: bytes) -> None:
    with answering(_says(said), echo) as server, closing(HttpTransport(server.url)) as sender:
        with pytest.raises(ConnectionLost) as caught:
            _ask(sender)
        assert str(caught.value).startswith(f"the connection to {server.url} broke: ")
        assert len(str(caught.value)) > len(f"the connection to {server.url} broke: ")
        assert _ask(sender, b"[7]") == [7]
    assert server.connections == 2


def test_a_kept_connection_that_has_gone_stale_is_lost_once() -> None:
    left = threading.Event()

    def one_and_leave(peer: Peer) -> None:
        peer.read()
        peer.reply(b"[1]")
        peer.close()
        left.set()

    with answering(one_and_leave, echo) as server, closing(HttpTransport(server.url)) as sender:
        assert _ask(sender) == [1]
        assert left.wait(10)
        with pytest.raises(ConnectionLost):
            _ask(sender)
        assert _ask(sender, b"[7]") == [7]


@pytest.mark.parametrize("said", [b"", HALF], ids=["nothing", "half a body"])
def test_silence_ends_at_the_limit_and_a_late_answer_reaches_nobody(said: bytes) -> None:
    with answering(_says(said, then_wait=True), echo) as server, closing(HttpTransport(server.url)) as sender:
        with pytest.raises(VerifierTimeout, match=r"/verify sent nothing for 0\.05 s"):
            _ask(sender, timeout=0.05)
        assert _ask(sender, b"[7]") == [7]


@pytest.mark.parametrize("said", [b"", CHUNKED + chunk(b"event: tokens\ndata: 1\n\n")], ids=["nothing", "one event"])
def test_a_stream_that_falls_silent_is_a_lost_connection(said: bytes) -> None:
    """A verifier with nothing to say says so every few seconds."""
    with answering(_says(said, then_wait=True), echo) as server, closing(HttpTransport(server.url)) as sender:
        with pytest.raises(ConnectionLost, match=r"/generate sent nothing for 0\.05 s"):
            _read(sender, timeout=0.05)
        assert _ask(sender, b"[7]") == [7]


@pytest.mark.parametrize("cut", range(70))
def test_a_stream_that_breaks_off_is_not_taken_for_a_whole_one(cut: int) -> None:
    events = chunk(b"event: tokens\ndata: 1\n\n") + chunk(b"event: end\ndata: 2\n\n")
    with (
        answering(_says(CHUNKED + events[: max(0, len(events) - cut)]), echo) as server,
        closing(HttpTransport(server.url)) as sender,
    ):
        with pytest.raises(ConnectionLost):
            _read(sender)
        assert _ask(sender, b"[7]") == [7]


@pytest.mark.parametrize("page", [b"<html>hello</html>", b"", b"\xff\xfe", b"{"])
def test_an_answer_that_is_not_json_asks_whether_it_is_a_verifier(page: bytes) -> None:
    def web_page(peer: Peer) -> None:
        peer.read()
        peer.reply(page)

    with answering(web_page) as server, pytest.raises(BadReply, match="not JSON: is it a verifier"):
        _ask(HttpTransport(server.url))


def test_an_error_page_keeps_its_status() -> None:
    def bad_gateway(peer: Peer) -> None:
        peer.read()
        peer.reply(b"<html>Bad gateway</html>", "502 Bad Gateway")

    with answering(bad_gateway) as server, closing(HttpTransport(server.url)) as sender:
        reply = sender.exchange("POST", "/verify", b"[1]", HEADERS, 10.0)
        assert (reply.status, reply.body, reply.retry_after) == (502, None, None)


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3.0), ("Wed, 21 Oct 2015 07:28:00 GMT", None), ("-1", None), ("\u00b2", None)]
)
def test_retry_after_counts_where_it_is_a_number_of_seconds(header: str, seconds: float | None) -> None:
    def busy(peer: Peer) -> None:
        peer.read()
        peer.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\nRetry-After: " + header.encode("latin-1") + b"\r\n\r\n{}")

    with answering(busy) as server, closing(HttpTransport(server.url)) as sender:
        assert sender.exchange("POST", "/verify", b"[1]", HEADERS, 10.0).retry_after == seconds


def test_an_event_that_is_not_json_is_no_event() -> None:
    said = CHUNKED + chunk(b"event: tokens\ndata: oops\n\n")
    with answering(_says(said, then_wait=True)) as server, pytest.raises(BadReply, match="not JSON"):
        _read(HttpTransport(server.url))


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the test sends a signal to the waiting thread")
@pytest.mark.parametrize("said", [b"", HALF], ids=["before the answer", "within it"])
def test_ctrl_c_in_an_exchange_leaves_no_answer_for_the_next_request(said: bytes) -> None:
    waiting = threading.get_ident()

    def interrupting(peer: Peer) -> None:
        peer.read()
        peer.send(said)
        signal.pthread_kill(waiting, signal.SIGINT)
        assert peer.read() is None  # the connection is given up

    with answering(interrupting, echo) as server, closing(HttpTransport(server.url)) as sender:
        with pytest.raises(KeyboardInterrupt):
            _ask(sender)
        assert _ask(sender, b"[7]") == [7]
    assert server.connections == 2


def test_a_connection_cannot_be_made_beforehand_where_nobody_listens() -> None:
    with pytest.raises(VerifierUnreachable):
        HttpTransport(f"http://127.0.0.1:{_free_port()}").connect()


def _silent_after(said: bytes, asked: threading.Event) -> Script:
    """Takes a request, says so, and waits for the client to give up."""

    def script(peer: Peer) -> None:
        assert peer.read() is not None
        peer.send(said)
        asked.set()
        assert peer.read() is None

    return script


@pytest.mark.parametrize(
    "said",
    [b"", HALF, CHUNKED + chunk(b"event: tokens\ndata: 1\n\n")],
    ids=["before the answer", "within it", "within a stream"],
)
def test_what_is_under_way_can_be_broken_off_from_another_thread(said: bytes) -> None:
    asked = threading.Event()
    with (
        answering(_silent_after(said, asked)) as server,
        closing(HttpTransport(server.url)) as sender,
        ThreadPoolExecutor(1) as pool,
    ):
        pending = pool.submit(_read if b"event" in said else _ask, sender)
        assert asked.wait(10)
        sender.abort()
        with pytest.raises(ConnectionLost):
            pending.result(10)


def test_an_answer_that_ends_with_its_connection_can_be_broken_off_too() -> None:
    """As proxies of the old kind send a stream: its end cannot be told from a break."""
    asked, heard = threading.Event(), threading.Event()
    said = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nevent: tokens\ndata: 1\n\n"
    with (
        answering(_silent_after(said, asked)) as server,
        closing(HttpTransport(server.url)) as sender,
        ThreadPoolExecutor(1) as pool,
    ):

        def read() -> list[object]:
            events: list[object] = []
            for event in sender.stream("/generate", b"{}", HEADERS, 1.0):
                events.append(event)
                heard.set()
            return events

        pending = pool.submit(read)
        assert asked.wait(10) and heard.wait(10)
        sender.abort()
        assert pending.result(10) == [("tokens", 1)]


@pytest.mark.parametrize("when", ["before", "while it connects"])
def test_what_is_broken_off_asks_nothing_over_a_new_connection(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = http.client.HTTPConnection.connect

    def connecting(connection: http.client.HTTPConnection) -> None:
        sender.abort()
        connect(connection)

    def unasked(peer: Peer) -> None:
        assert peer.read() is None

    with answering(echo, unasked) as server, closing(HttpTransport(server.url)) as sender:
        assert _ask(sender, b"[7]") == [7]
        sender.close()
        if when == "before":
            sender.abort()
        else:
            monkeypatch.setattr(http.client.HTTPConnection, "connect", connecting)
        with pytest.raises(ConnectionLost, match="broken off"):
            _ask(sender, b"[8]")
    sender.abort()  # and again: nothing is left to break off


class _Slow(ThreadingHTTPServer):
    """Answers `/verify` when `/health` was asked so many times, or never; and `/health` as it is told to."""

    daemon_threads = True

    def __init__(self, looks: int | None, health: bytes) -> None:
        self.asked, self.looks, self.health = threading.Semaphore(0), looks, health
        self.broken_off = threading.Event()
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
        for _ in range(self.server.looks or 0):
            assert self.server.asked.acquire(timeout=10)
        if self.server.looks is None:
            assert self.rfile.read(3) == b"[1]" and not self.rfile.read(1)
            self.server.broken_off.set()
        else:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[7]")

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _slow(looks: int | None, health: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") -> Iterator[_Slow]:
    with _Slow(looks, health) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_LOOK_AFTER", 0.02)
    monkeypatch.setattr(transport, "_LOOK_AGAIN", 0.01)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(
    "health", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"]
)
def test_an_answer_that_takes_long_is_waited_for_while_something_answers_beside(health: bytes) -> None:
    with _slow(3, health) as server, closing(HttpTransport(server.url)) as sender:
        assert _ask(sender) == [7]


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("health", [b"", b"HTTP/1.1 2"])
def test_an_answer_is_given_up_where_nothing_answers_beside(health: bytes) -> None:
    with _slow(None, health) as server, closing(HttpTransport(server.url)) as sender:
        with pytest.raises(ConnectionLost, match=r"/verify sent nothing for 0\.02 s, and nothing answers beside: "):
            _ask(sender)
        assert server.broken_off.wait(10)


@pytest.mark.usefixtures("_impatient")
def test_a_frozen_verifier_is_asked_at_health_once_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system takes connections for it, as for a process that was stopped, and nothing ever answers."""
    monkeypatch.setattr(transport, "_LOOK_TIMEOUT", 0.2)  # ten times as long as an answer is waited for without a look
    connections = 0
    with socket.create_server(("127.0.0.1", 0), backlog=64) as frozen:
        url = f"http://127.0.0.1:{frozen.getsockname()[1]}"
        given_up = pytest.raises(ConnectionLost, match=r"/health sent nothing for 0\.2 s")
        with closing(HttpTransport(url)) as sender, given_up:
            _ask(sender)
        frozen.settimeout(0.0)
        with suppress(BlockingIOError):
            while True:
                frozen.accept()[0].close()
                connections += 1
    assert connections == 2, "the request's, and that of the look"


def test_what_is_asked_beside_is_broken_off_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes one connection at a time, so that the second waits."""
    monkeypatch.setattr(transport, "_LOOK_AFTER", 0.02)
    looking = threading.Event()
    look = HttpTransport._look_beside

    def noted(self: HttpTransport, path: str, waited: float) -> None:
        looking.set()
        look(self, path, waited)

    monkeypatch.setattr(HttpTransport, "_look_beside", noted)
    asked = threading.Event()
    with (
        answering(_silent_after(b"", asked)) as server,
        closing(HttpTransport(server.url)) as sender,
        ThreadPoolExecutor(1) as pool,
    ):
        pending = pool.submit(_ask, sender)
        assert looking.wait(10)
        sender.abort()
        with pytest.raises(ConnectionLost):
            pending.result(5)


def test_the_system_watches_over_a_connection() -> None:
    with answering(echo) as server, closing(HttpTransport(server.url)) as sender:
        _ask(sender)
        assert sender._socket is not None
        sock = sender._socket._sock
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for name, value in (
            ("TCP_KEEPIDLE", 5),
            ("TCP_KEEPINTVL", 3),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", 15_000),
        ):
            if hasattr(socket, name):
                assert sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value


def test_every_failure_is_a_drafter_error() -> None:
    for kind in (BadReply, ConnectionLost, VerifierTimeout, VerifierUnreachable):
        assert issubclass(kind, DrafterError)
