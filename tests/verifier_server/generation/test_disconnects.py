"""Clients that disconnect while they wait: their requests are dropped, their sessions stay unchanged."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.verifier_server.conftest import SCRIPT, Serve
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import Gated, leave_behind, until
from verifier_server.generation import engine_client
from verifier_server.generation.engine_client import EngineClient

PROMPT_IDS = [256, 1, 2]
TEXT = plain(SCRIPT, PROMPT_IDS, 10)


@pytest.mark.parametrize("path", ["/verify", "/prefill"])
def test_requests_of_disconnected_clients_are_dropped_and_can_be_sent_again(serve: Serve, path: str) -> None:
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
        leave_behind(live, path, body, lambda: len(sessions) == 2 and sessions.get("s").lease.requests == 1)
        if path == "/prefill":
            until(lambda: len(sessions) == 1)  # no token was committed, so the session is removed
        else:
            until(lambda: sessions.get("s").lease.requests == 0)
        backend.gate.set()
        assert other.result(20)["tokens"] == plain(SCRIPT, [256, 9], 1)
    live.service.engine.check_integrity()
    assert backend.passes == passes + 1, "the other session's, and none for the disconnected client"
    reply = live.post(path, body)
    assert reply["tokens"] == (TEXT[:1] if path == "/prefill" else TEXT[1:4])


def test_requests_beyond_max_queue_are_refused_with_retry_after(serve: Serve) -> None:
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
        until(lambda: len(sessions) == 4)
        live.http.get("/health")  # the event loop answers it when it has given the last request to the engine
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
    """A connection that is closed when the test says so."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.listened = asyncio.Event()
        self.cancelled = False

    async def receive(self) -> dict[str, Any]:
        self.listened.set()
        try:
            await self.closed.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return {"type": "http.disconnect"}


def test_connections_are_watched_only_if_the_answer_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_client, "PATIENCE", 0.001)

    async def scenario() -> None:
        fast, slow, patient = Connection(), Connection(), Connection()
        watched = EngineClient().watched
        disconnected: list[str] = []
        with watched(slow.receive, lambda: disconnected.append("slow")):
            with watched(fast.receive, lambda: disconnected.append("fast")):
                pass
            await asyncio.wait_for(slow.listened.wait(), 20)
            assert disconnected == []
            slow.closed.set()
            with watched(patient.receive, lambda: disconnected.append("patient")):
                await asyncio.wait_for(patient.listened.wait(), 20)
                assert disconnected == ["slow"]
        await asyncio.sleep(0)
        assert (fast.listened.is_set(), patient.cancelled, disconnected) == (False, True, ["slow"])

    asyncio.run(scenario())
