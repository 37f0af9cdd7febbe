"""Routers in front of three verifiers: sessions stay where they are, and texts outlive a verifier."""

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Mode, Options, Pair, Tokens
from tests.deploy.routers import FILES, OURS, free_port, needed, routing
from tests.drafter_client.support import plain
from tests.verifier_server.processes import MODULE, ready

PROMPT = "def f(x):"
TEXTS = 6
WARM = Options(max_tokens=400, temperature=0.8)
TARGET = ScriptedBackend(Script(seed=1))
SETTINGS = {"VERIFIER_BACKEND": "scripted", "VERIFIER_MODEL": "1", "VERIFIER_DRAIN_SECONDS": "0"}
Replica = tuple[subprocess.Popen[str], httpx.Client]


@pytest.fixture(params=FILES)
def routed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, list[Replica]]]:
    """The address of a router, and the three verifiers behind it."""
    needed(request.param)
    port = free_port()
    with ExitStack() as stack, ThreadPoolExecutor(3) as threads:
        starting = [ready(MODULE, **SETTINGS) for _ in range(3)]
        replicas = [*threads.map(stack.enter_context, starting)]
        command = FILES[request.param](tmp_path, port, [http.base_url.port for _, http in replicas])
        yield stack.enter_context(routing(command, port)), replicas


def options_of(number: int) -> Options:
    """Those of one of several texts: greedy ones, and samples of other seeds."""
    return replace(
        WARM, seed=number, temperature=0.8 if number % 2 else 0.0, mode=(Mode.REMOTE, Mode.TARGET)[number // 2 % 2]
    )


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


def expected(number: int) -> list[int]:
    options = options_of(number)
    return plain(TARGET, TARGET.vocabulary.encode(PROMPT), options.max_tokens, options.sampling)


def generated(http: httpx.Client) -> int:
    return sum(each["generated_tokens"] for each in http.get("/usage").json()["keys"])


def under_way(http: httpx.Client) -> int:
    return int(http.get("/health").json()["sessions"])


def lost_meanwhile(pair: Pair, replicas: list[Replica], ending: signal.Signals) -> None:
    """Have texts written at once, and the verifier that has the most of them end by a signal in the middle of them."""
    all_begun, ended = threading.Barrier(TEXTS + 1), threading.Event()

    def begun() -> None:
        all_begun.wait(60)
        assert ended.wait(60)

    with ThreadPoolExecutor(TEXTS) as threads:
        writing = [threads.submit(written, pair, number, begun) for number in range(TEXTS)]
        all_begun.wait(60)
        counts = [under_way(http) for _, http in replicas]
        lost = replicas.pop(counts.index(max(counts)))[0]
        lost.send_signal(ending)
        if ending is signal.SIGKILL:
            lost.wait()
        ended.set()
        found = [each.result(120) for each in writing]
    assert [tokens for tokens, _ in found] == [expected(number) for number in range(TEXTS)]
    moved = sum(bool(resumed) for _, resumed in found)
    assert moved <= max(counts), "only texts of that verifier move"
    assert moved or ending is signal.SIGTERM  # after which texts may have the time to end


def test_sessions_stay_where_they_are_and_texts_outlive_their_verifier(routed: tuple[str, list[Replica]]) -> None:
    url, replicas = routed
    with Pair(url, DraftModel(Path("1"), "scripted"), texts=TEXTS) as pair:
        for number in range(TEXTS):
            assert written(pair, number, lambda: None) == (expected(number), [])
        counts = [generated(http) for _, http in replicas]
        assert sum(count > 0 for count in counts) >= 2, counts
        assert not any(under_way(http) for _, http in replicas), "DELETE finds its session, too"
        lost_meanwhile(pair, replicas, signal.SIGKILL)
        lost_meanwhile(pair, replicas, signal.SIGTERM)
        assert written(pair, 1, lambda: None) == (expected(1), [])


class _Stub(BaseHTTPRequestHandler):
    """A verifier that only says whether it is ready."""

    protocol_version = "HTTP/1.1"
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None: ...


class _Loading(_Stub):
    status = 503


@pytest.mark.parametrize("name", [name for name in FILES if name != OURS])  # which wants to hear more of a verifier
def test_a_verifier_that_loads_is_left_out(name: str, tmp_path: Path) -> None:
    needed(name)
    port = free_port()
    with ExitStack() as stack:
        stubs = [stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), kind)) for kind in (_Loading, _Stub, _Stub)]
        for stub in stubs:
            stack.callback(stub.shutdown)
            threading.Thread(target=stub.serve_forever, args=(0.01,), daemon=True).start()
        command = FILES[name](tmp_path, port, [stub.server_port for stub in stubs])
        url = stack.enter_context(routing(command, port))
        with httpx.Client(base_url=url, trust_env=False) as http:
            assert {http.get("/health").status_code for _ in range(30)} == {200}
