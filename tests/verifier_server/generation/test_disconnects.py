"""Clients that hang up while they wait: nobody computes for them, and their sessions are as they were."""

import asyncio
import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.verifier_server.api.test_http_concurrency import Gated
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain
from verifier_server.generation import disconnects
from verifier_server.generation.disconnects import DisconnectWatcher, WatchedRequest

PROMPT_IDS = [256, 1, 2]
TEXT = plain(SCRIPT, PROMPT_IDS, 10)


def until(live: LiveServer, happened: Callable[[], bool]) -> None:
    """Keep the server's loop turning until something has happened in it."""
    with live.client() as client:
        for _ in range(20_000):
            if happened():
                return
            client.get("/health")
    raise AssertionError("it never happened")


def leave_behind(live: LiveServer, path: str, body: dict[str, Any], arrived: Callable[[], bool]) -> None:
    """Send a request and hang up once it has arrived."""
    content = json.dumps(body).encode()
    with socket.create_connection(live.address) as connection:
        connection.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(content)))
        connection.sendall(content)
        until(live, arrived)


@pytest.mark.parametrize("path", ["/verify", "/prefill"])
def test_what_is_left_behind_is_dropped_and_can_be_asked_again(serve: Serve, path: str) -> None:
    backend = Gated()
    live = serve(backend)
    sessions = live.service.sessions
    prefill = {"session_id": "s", "prompt_ids": PROMPT_IDS}
    if path == "/verify":
        live.post("/prefill", prefill)
    body = prefill if path == "/prefill" else {"session_id": "s", "position": 4, "draft_tokens": TEXT[1:3]}
    passes = backend.passes
    backend.close_gate()
    with ThreadPoolExecutor(1) as thread:
        other = thread.submit(live.post, "/prefill", {"session_id": "other", "prompt_ids": [256, 9]})
        assert backend.entered.wait(20)
        leave_behind(live, path, body, lambda: len(sessions) == 2 and sessions.get("s").requests == 1)
        if path == "/prefill":
            until(live, lambda: len(sessions) == 1)  # nothing has come of it, so nothing stays
        else:
            until(live, lambda: sessions.get("s").requests == 0)
        backend.gate.set()
        assert other.result(20)["tokens"] == plain(SCRIPT, [256, 9], 1)
    live.service.engine.check_integrity()
    assert backend.passes == passes + 1, "the other's, and none for whom nobody waits"
    reply = live.post(path, body)
    assert reply["tokens"] == (TEXT[:1] if path == "/prefill" else TEXT[1:4])


def test_more_guesses_than_may_wait_are_told_when_to_come_back(serve: Serve) -> None:
    backend = Gated()
    live = serve(backend, max_queue=1)
    backend.close_gate()
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(live.post, "/prefill", {"session_id": "first", "prompt_ids": PROMPT_IDS})
        assert backend.entered.wait(20)
        others = [
            threads.submit(live.http.post, "/prefill", json={"session_id": name, "prompt_ids": PROMPT_IDS})
            for name in ("a", "b", "c")
        ]
        sessions = live.service.sessions
        until(live, lambda: len(sessions) == 4)
        backend.gate.set()
        assert first.result(20)["tokens"] == TEXT[:1]
        responses = [other.result(20) for other in others]
    refused = [response for response in responses if response.status_code == 503]
    assert len(refused) == 2
    for response in refused:
        assert response.headers["retry-after"] == "1"
        assert response.json()["error"]["code"] == "overloaded"
    for name in ("a", "b", "c"):
        assert live.post("/prefill", {"session_id": name, "prompt_ids": PROMPT_IDS})["tokens"] == TEXT[:1]


class Connection:
    """A connection that its client closes when the test says so."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.listened = asyncio.Event()
        self.given_up = False

    async def receive(self) -> dict[str, Any]:
        self.listened.set()
        try:
            await self.closed.wait()
        except asyncio.CancelledError:
            self.given_up = True
            raise
        return {"type": "http.disconnect"}


def test_connections_are_watched_only_when_the_answer_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disconnects, "_PATIENCE", 0.001)

    async def scene() -> None:
        watch, fast, slow, patient = DisconnectWatcher(), Connection(), Connection(), Connection()
        left: list[str] = []
        with WatchedRequest(watch, slow.receive, lambda: left.append("slow")):
            with WatchedRequest(watch, fast.receive, lambda: left.append("fast")) as answered:
                pass
            answered.watch()  # its turn comes when it has been answered
            await asyncio.wait_for(slow.listened.wait(), 20)
            assert left == []
            slow.closed.set()
            with WatchedRequest(watch, patient.receive, lambda: left.append("patient")):
                await asyncio.wait_for(patient.listened.wait(), 20)
                assert left == ["slow"]
        await asyncio.sleep(0)
        assert (fast.listened.is_set(), patient.given_up, left) == (False, True, ["slow"])

    asyncio.run(scene())
