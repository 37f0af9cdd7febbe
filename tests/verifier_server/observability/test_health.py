"""The statuses loading, ready, overloaded, draining and failed, as orchestrators and drafters see them."""

from collections.abc import Callable

import httpx
import pytest

from backends.scripted import ScriptedBackend
from drafter_client.http.client import VerifierClient
from drafter_client.http.outages import Health, VerifierLoad
from specpair.protocol.errors import ShuttingDown
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from verifier_server.engine.queue import Queue

Change = Callable[[LiveServer, pytest.MonkeyPatch], None]


def loading(live: LiveServer, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(live.service.loader, "models", None)
    live.service.loader.progress = 0.5


def queue_full(_: LiveServer, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "is_full", True)


def sessions_in_use(live: LiveServer, _: pytest.MonkeyPatch) -> None:
    live.post("/prefill", {"session_id": "a", "prompt": "x"})
    live.service.sessions.use(live.service.sessions.get("a"))


def draining(live: LiveServer, _: pytest.MonkeyPatch) -> None:
    live.service.draining.begun = True


def stopping(live: LiveServer, _: pytest.MonkeyPatch) -> None:
    live.service.stopping = True


def engine_dead(live: LiveServer, _: pytest.MonkeyPatch) -> None:
    live.service.engine.failure = "a device went away"


@pytest.mark.parametrize(
    ("change", "status", "live_status", "health"),
    [
        (lambda *_: None, "ready", 200, (200, "ready")),
        (loading, "loading", 200, (503, "loading")),
        (queue_full, "overloaded", 200, (200, "ready")),
        (sessions_in_use, "overloaded", 200, (200, "ready")),
        (draining, "draining", 200, (503, "draining")),
        (stopping, "draining", 200, (503, "draining")),
        (engine_dead, "failed", 503, (503, "failed")),
    ],
    ids=["ready", "loading", "queue full", "sessions in use", "draining", "stopping", "failed"],
)
def test_statuses_are_told_apart(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    status: str,
    live_status: int,
    health: tuple[int, str],
) -> None:
    live = serve(ScriptedBackend(SCRIPT), max_sessions=1)
    with monkeypatch.context() as patch:
        change(live, patch)
        ready = live.http.get("/ready")
        assert (ready.status_code, ready.json()) == (200 if status == "ready" else 503, {"status": status})
        assert ("retry-after" in ready.headers) == (status not in ("ready", "failed"))
        alive = live.http.get("/live")
        assert (alive.status_code, alive.json()["status"]) == (live_status, "alive" if live_status == 200 else "failed")
        told = live.http.get("/health")
        assert (told.status_code, told.json()["status"]) == health
        assert ("overloaded" in told.json()) == (status == "overloaded")


def test_drafter_waits_for_a_verifier_that_drains(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    live.service.draining.begun = True
    client = VerifierClient(live.url)
    assert client.health() == Health(False, "it is being stopped", draining=True)
    with pytest.raises(ShuttingDown, match="is being stopped, and takes no new texts"):
        client.wait_until_ready()
    client.close()


def test_drafter_uses_a_verifier_that_is_overloaded(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    queue_full(live, monkeypatch)
    client = VerifierClient(live.url)
    client.wait_until_ready()
    assert client.health()._replace(identity="") == Health(True, load=VerifierLoad(overloaded=True))
    client.close()


def test_new_texts_are_refused_and_known_sessions_served_while_it_drains(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    body = {"session_id": "a", "prompt_ids": [256, 1, 2], "max_tokens": 8}
    opened = live.post("/prefill", body)
    live.service.draining.begun = True
    assert live.post("/prefill", body)["tokens"] == opened["tokens"]
    assert live.post("/verify", {"session_id": "a", "position": 4, "draft_tokens": []})["total_tokens"] == 5
    continued = {**body, "committed_ids": opened["tokens"], "seed": opened["sampling"]["seed"]}
    assert live.post("/generate", continued)["finish_reason"] == "length", "as in mode auto, in the same session"
    for path, new in (("/prefill", {**body, "session_id": "b"}), ("/generate", {"prompt": "x"})):
        response: httpx.Response = live.http.post(path, json=new)
        assert (response.status_code, response.json()["error"]["code"]) == (503, "shutting_down")
        assert response.headers["retry-after"] == "1"
    assert len(live.service.sessions) == 1
