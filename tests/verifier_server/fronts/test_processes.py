"""`verifier --workers N`: its processes, and what becomes of texts when one of them dies."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from specpair.child_processes.children import child
from tests.verifier_server.conftest import SCRIPT
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.processes import ENDLESS, environment
from tests.waiting import gone, needs_proc, until

IDS = [256, 1, 2]
pytestmark = needs_proc


class Workers:
    """A verifier with two fronts."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self.process, self.url = process, f"http://127.0.0.1:{port}"

    @property
    def fronts(self) -> list[int]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(each) for each in listed if b"fronts.front" in Path(f"/proc/{each}/cmdline").read_bytes()]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The reply to a request, over a connection of its own; it is sent again if a front dies under it."""
        while True:
            try:
                reply = httpx.request(method, self.url + path, json=body, timeout=20, trust_env=False)
            except httpx.TransportError:
                assert self.process.poll() is None, "the verifier has ended"
                continue
            return reply.raise_for_status().json()


@pytest.fixture
def workers() -> Iterator[Workers]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ["-m", "verifier_server", "--workers", "2", "--port", str(port)]
    with child(*arguments, environment=environment(**ENDLESS), stderr=subprocess.DEVNULL) as process:
        found = Workers(process, port)
        until(lambda: len(found.fronts) == 2 and _is_ready(found), "the verifier is not ready", 60.0)
        yield found


def _is_ready(workers: Workers) -> bool:
    try:
        return httpx.get(workers.url + "/health", trust_env=False).is_success
    except httpx.TransportError:
        return False


def test_texts_go_on_while_fronts_are_killed(workers: Workers) -> None:
    expected = plain(SCRIPT, IDS, 40)
    text = workers.ask("POST", "/prefill", {"session_id": "s", "prompt_ids": IDS})["tokens"]
    dead = set[int]()
    while len(text) < len(expected):
        if len(text) % 10 == 5 and len(workers.fronts) == 2:
            victim = workers.fronts[0]
            os.kill(victim, signal.SIGKILL)
            dead.add(victim)
        body = {"session_id": "s", "position": len(IDS) + len(text), "draft_tokens": expected[len(text) :][:3]}
        text += workers.ask("POST", "/verify", body)["tokens"]
    assert text[:40] == expected
    assert dead
    until(lambda: len(workers.fronts) == 2, "no new front has started", 30.0)
    assert not dead & {*workers.fronts}
    counted = httpx.get(workers.url + "/metrics", trust_env=False).text
    assert 'specpair_http_requests_total{model_name="scripted-2",route="/verify",status="200"}' in counted


def test_the_fronts_end_with_the_engines_process(workers: Workers) -> None:
    fronts = workers.fronts
    workers.process.kill()
    assert workers.process.wait(20) == -signal.SIGKILL
    for each in fronts:
        assert gone(each)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_all_processes(workers: Workers, number: signal.Signals) -> None:
    fronts = workers.fronts
    workers.ask("POST", "/prefill", {"session_id": "s", "prompt_ids": IDS})
    workers.ask("DELETE", "/sessions/s")
    workers.process.send_signal(number)
    assert workers.process.wait(20) == 0
    for each in fronts:
        assert gone(each)
