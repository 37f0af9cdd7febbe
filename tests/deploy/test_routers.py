"""Routers in front of three verifiers: sessions stay where they are, and texts outlive a verifier."""

import fcntl
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from drafter_client import DraftModel, Pair, Tokens
from tests.deploy.routers import FILES, OURS, PROMPT, TEXTS, expected, free_port, needed, options_of, routing
from tests.forking import Process
from tests.verifier_server.processes import ready
from tests.waiting import until

SETTINGS = {"VERIFIER_BACKEND": "scripted", "VERIFIER_MODEL": "1", "VERIFIER_DRAIN_SECONDS": "0"}
Replica = tuple[Process, httpx.Client]
# A verifier whose passes wait while a file is locked.
HELD = """
import fcntl, sys
import backends.scripted
from verifier_server.__main__ import main

class Held(backends.scripted.ScriptedBackend):
    def _forward(self, batch):
        with open({path!r}) as gate:
            fcntl.flock(gate, fcntl.LOCK_SH)
        return super()._forward(batch)

backends.scripted.ScriptedBackend = Held
sys.argv[0] = "verifier"
sys.exit(main())
"""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that verifiers wait for."""
    path = tmp_path / "gate"
    path.touch()
    return path


@pytest.fixture(params=FILES)
def routed(request: pytest.FixtureRequest, tmp_path: Path, gate: Path) -> Iterator[tuple[str, list[Replica]]]:
    """The address of a router, and the three verifiers behind it."""
    needed(request.param)
    port = free_port()
    with ExitStack() as stack, ThreadPoolExecutor(3) as threads:
        held = [sys.executable, "-c", HELD.format(path=str(gate))]
        starting = [ready(held, **SETTINGS) for _ in range(3)]
        replicas = [*threads.map(stack.enter_context, starting)]
        command = FILES[request.param](tmp_path, port, [http.base_url.port for _, http in replicas])
        yield stack.enter_context(routing(command, port)), replicas


def written(pair: Pair, number: int, begun: Callable[[], object]) -> tuple[list[int], list[int]]:
    """The tokens of a text, and where it was resumed. `begun`: called after some tokens."""
    tokens: list[int] = []
    text = pair.generate(PROMPT, options_of(number))
    for event in text:
        if isinstance(event, Tokens):
            before = len(tokens)
            tokens += [token.id for token in event.tokens]
            if before < 40 <= len(tokens):
                begun()
    return tokens, text.stats.resumed


def generated(http: httpx.Client) -> int:
    return sum(each["generated_tokens"] for each in http.get("/usage").json()["keys"])


def under_way(http: httpx.Client) -> int:
    return int(http.get("/health").json()["sessions"])


def half_written(http: httpx.Client) -> int:
    """How many texts have some tokens, and not all."""
    return sum(
        each["finish_reason"] is None and each["total_tokens"] > len(PROMPT) + 1
        for each in http.get("/sessions").json()["sessions"]
    )


def lost_meanwhile(pair: Pair, replicas: list[Replica], ending: signal.Signals, gate: Path) -> None:
    """Have texts written at once, and the verifier that has the most of them end by a signal in the middle of them."""
    begun = threading.Event()
    with ThreadPoolExecutor(TEXTS) as threads, open(gate, encoding="utf-8") as held:
        writing = [threads.submit(written, pair, number, begun.set) for number in range(TEXTS)]
        assert begun.wait(60)
        fcntl.flock(held, fcntl.LOCK_EX)  # no verifier goes on
        until(
            lambda: sum(under_way(http) for _, http in replicas) + sum(each.done() for each in writing) >= TEXTS,
            "some texts have not begun",
            60.0,
        )
        counts = [half_written(http) for _, http in replicas]
        (lost, http) = replicas.pop(counts.index(max(counts)))
        most = under_way(http)
        lost.send_signal(ending)
        if ending is signal.SIGKILL:
            lost.wait()
        fcntl.flock(held, fcntl.LOCK_UN)
        found = [each.result(120) for each in writing]
    assert [tokens for tokens, _ in found] == [expected(number) for number in range(TEXTS)]
    moved = sum(bool(resumed) for _, resumed in found)
    assert moved <= most, "only texts of that verifier move"
    assert moved or ending is signal.SIGTERM  # after which texts may have the time to end


def test_sessions_stay_where_they_are_and_texts_outlive_their_verifier(
    routed: tuple[str, list[Replica]], gate: Path
) -> None:
    url, replicas = routed
    with Pair(url, DraftModel(Path("1"), "scripted"), texts=TEXTS) as pair:
        for number in range(TEXTS):
            assert written(pair, number, lambda: None) == (expected(number), [])
        counts = [generated(http) for _, http in replicas]
        assert sum(count > 0 for count in counts) >= 2, counts
        assert not any(under_way(http) for _, http in replicas), "DELETE finds its session, too"
        lost_meanwhile(pair, replicas, signal.SIGKILL, gate)
        lost_meanwhile(pair, replicas, signal.SIGTERM, gate)
        assert written(pair, 1, lambda: None) == (expected(1), [])


def test_sessions_of_clients_without_cookies_stay_where_they_are(routed: tuple[str, list[Replica]]) -> None:
    """By the header X-Session-Id alone. Each request has a connection of its own."""
    url, replicas = routed
    for number in range(12):
        session, ask = {"X-Session-Id": f"{number:032x}"}, {"prompt": PROMPT, "max_tokens": 9}
        opened = httpx.post(f"{url}/prefill", json=ask, headers=session, trust_env=False).json()
        for _ in range(4):
            draft = {"draft_tokens": [1], "position": opened["prompt_len"] + 1}
            assert httpx.post(f"{url}/verify", json=draft, headers=session, trust_env=False).status_code == 200
    counts = [under_way(http) for _, http in replicas]
    assert sum(counts) == 12 and sum(count > 0 for count in counts) >= 2, counts


class _Stub(BaseHTTPRequestHandler):
    """A verifier that only says whether it is ready, and which one it is."""

    protocol_version = "HTTP/1.1"
    status = 200
    server: ThreadingHTTPServer

    @property
    def name(self) -> str:
        return str(self.server.server_port)

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.send_header("X-Verifier", self.name)
        self.end_headers()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *arguments: object) -> None: ...


class _Loading(_Stub):
    status = 503


@pytest.fixture(params=[name for name in FILES if name != OURS])  # which wants to hear more of a verifier
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a router before three servers, and returns its address."""
    needed(request.param)
    with ExitStack() as stack:

        def started(*servers: ThreadingHTTPServer) -> str:
            port = free_port()
            for each in servers:
                stack.enter_context(each)
                stack.callback(each.shutdown)
                threading.Thread(target=each.serve_forever, args=(0.01,), daemon=True).start()
            command = FILES[request.param](tmp_path, port, [each.server_port for each in servers])
            return stack.enter_context(routing(command, port))

        yield started


def serving(verifier: type[_Stub]) -> ThreadingHTTPServer:
    return ThreadingHTTPServer(("127.0.0.1", 0), verifier)


def test_a_verifier_that_loads_is_left_out(before: Callable[..., str]) -> None:
    with httpx.Client(base_url=before(serving(_Loading), serving(_Stub), serving(_Stub)), trust_env=False) as http:
        assert {http.get("/health").status_code for _ in range(30)} == {200}


def test_a_session_begins_where_the_load_is_least_and_its_cookie_keeps_it_there(before: Callable[..., str]) -> None:
    begun: list[str] = []
    free, lost = threading.Event(), set[str]()  # the names of those that have ended

    class Verifier(_Stub):
        def do_GET(self) -> None:
            if self.name in lost:
                self.close_connection = True
            else:
                super().do_GET()

        def do_POST(self) -> None:
            if self.name not in lost:
                begun.append(self.name)
                assert free.wait(60)
            self.do_GET()

    def verifier_of(session: httpx.Client) -> str:
        answer = session.post("/verify")
        assert answer.status_code == 200
        return answer.headers["X-Verifier"]

    def asking(session: httpx.Client) -> Future[str]:
        """The session's request, which a verifier has now."""
        due = len(begun) + 1
        asked = threads.submit(verifier_of, session)
        until(lambda: len(begun) == due or asked.done(), "a request does not reach a verifier")
        return asked

    servers = {str(each.server_port): each for each in map(serving, [Verifier] * 3)}
    url = before(*servers.values())
    with ExitStack() as stack:
        sessions = []  # each has its own cookies
        for number in range(6):
            headers = {"X-Session-Affinity": "cookie", "X-Session-Id": f"{number:032x}"}
            sessions.append(stack.enter_context(httpx.Client(base_url=url, headers=headers, trust_env=False)))
        threads = stack.enter_context(ThreadPoolExecutor(6))
        stack.callback(free.set)
        asked = [asking(session) for session in sessions]
        free.set()
        first = [each.result() for each in asked]
        assert sorted(Counter(first).values()) == [2, 2, 2]
        assert [verifier_of(session) for session in sessions] == first
        free.clear()
        busy = [asking(session) for session, verifier in zip(sessions, first, strict=True) if verifier != first[0]]
        lost.add(first[0])  # it has the least load
        servers[first[0]].shutdown()
        servers[first[0]].server_close()
        moving = asking(sessions[0])
        free.set()
        moved = moving.result()
        assert moved != first[0] and {each.result() for each in busy} == {*first} - {first[0]}
        assert [verifier_of(sessions[0]) for _ in range(3)] == [moved] * 3


def test_a_client_that_does_not_keep_cookies_by_session_gets_none(before: Callable[..., str]) -> None:
    """Its one cookie would lead all its sessions to one verifier."""
    with httpx.Client(base_url=before(*map(serving, [_Stub] * 3)), trust_env=False) as http:
        by_load = {http.post("/v1/completions").headers["X-Verifier"] for _ in range(40)}
        by_session = {
            http.post("/prefill", headers={"X-Session-Id": f"{number:032x}"}).headers["X-Verifier"]
            for number in range(40)
        }
        assert len(by_load) == len(by_session) == 3 and not http.cookies
