"""Requests while the model loads, after a failure, and without the right key."""

import threading
from collections.abc import Iterator, Sequence

import httpx
import pytest

from backends.scripted import ScriptedBackend
from specpair.engines.backend import Backend, Entry, Logits, Progress
from specpair.engines.errors import EngineFailure, ModelLoadError
from specpair.engines.load_options import LoadOptions
from specpair.protocol.service_responses import HealthResponse
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.support import REQUESTS
from verifier_server.service import Service
from verifier_server.settings import Settings


class SlowLoad:
    """Replaces the registry's `load`: stops halfway until `go_on` is set."""

    def __init__(self) -> None:
        self.halfway, self.go_on = threading.Event(), threading.Event()
        self.failure: Exception | None = None
        self.freed = threading.Event()

    def __call__(self, name: str, options: LoadOptions, progress: Progress) -> Backend:
        assert (name, options.slots) == ("scripted", None)
        progress(0.4321)
        self.halfway.set()
        assert self.go_on.wait(20)
        if self.failure is not None:
            raise self.failure
        backend = ScriptedBackend(SCRIPT)
        backend.close = self.freed.set  # type: ignore[method-assign]
        return backend


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowLoad]:
    load = SlowLoad()
    monkeypatch.setattr("verifier_server.engine.choice.load", load)
    yield load
    load.go_on.set()


def assert_all_refused(live: LiveServer, code: str) -> list[httpx.Response]:
    responses = [live.http.request(method, path, json=body) for method, path, body in REQUESTS]
    assert [response.status_code for response in responses] == [503] * len(REQUESTS)
    assert [response.json()["error"]["code"] for response in responses] == [code] * len(REQUESTS)
    return responses


def test_requests_are_refused_while_the_model_loads(serve: Serve, slow: SlowLoad) -> None:
    live = serve(wait=False)
    assert slow.halfway.wait(20)
    health = live.http.get("/health")
    assert 'specpair_status{model_name="-",status="loading"} 1.0' in (shown := live.http.get("/metrics").text)
    assert '=""' not in shown
    assert (health.status_code, health.json()) == (503, {"status": "loading", "progress": 0.432})
    for response in assert_all_refused(live, "model_loading"):
        assert response.headers["retry-after"] == "1", "the load began less than a second ago"
        assert response.json()["error"]["message"] == "the model is loading (43%): wait and ask again"
        assert response.json()["error"]["progress"] == 0.4321
    assert live.http.get("/sessions").json() == {"sessions": []}
    slow.go_on.set()
    live.wait_until_ready()
    assert live.post("/prefill", {"prompt": "x"})["model"] == "scripted-2"


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (ModelLoadError("no such model file: x.gguf"), "no such model file: x.gguf"),
        (ValueError("an engine's error"), "ValueError: an engine's error"),
    ],
    ids=["expected", "unexpected"],
)
def test_model_that_cannot_be_loaded_is_reported(serve: Serve, slow: SlowLoad, failure: Exception, reason: str) -> None:
    slow.failure = failure
    slow.go_on.set()
    live = serve()
    health = live.http.get("/health")
    assert (health.status_code, health.json()) == (503, {"status": "failed", "reason": reason})
    for response in assert_all_refused(live, "model_failed"):
        assert response.json()["error"]["message"] == f"the model could not be loaded: {reason}"
        assert "retry-after" not in response.headers


def test_stop_waits_for_the_load_and_frees_the_model(serve: Serve, slow: SlowLoad) -> None:
    """Interrupting a library during the load would be unsafe, so the stop waits and frees the model."""
    live = serve(wait=False)
    assert slow.halfway.wait(20)
    closer = threading.Thread(target=live.close)
    closer.start()
    slow.go_on.set()
    closer.join(20)
    assert not closer.is_alive()
    assert slow.freed.is_set()


class Dying(ScriptedBackend):
    """A backend whose next pass raises `fault` if it is set: an EngineFailure or an unexpected exception."""

    fault: Exception | None = None

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        logits = super()._forward(batch)
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        return logits


def test_engine_that_fails_its_first_passes_is_not_served() -> None:
    backend = Dying(SCRIPT)
    backend.fault = EngineFailure("out of memory")
    service = Service(Settings(backend="scripted"), backend)
    service.loader.start()
    service.stop()
    assert service.health() == HealthResponse(status="failed", reason="out of memory")


def test_failed_pass_is_an_error_and_a_retry_succeeds(serve: Serve) -> None:
    backend = Dying(SCRIPT)
    live = serve(backend)
    backend.fault = EngineFailure("out of memory")
    body = {"session_id": "s", "prompt": "x"}
    response = live.http.post("/prefill", json=body)
    assert response.status_code == 500
    assert response.json()["error"] == {
        "code": "engine_error",
        "type": "server_error",
        "message": "the engine failed: out of memory",
    }
    assert live.post("/prefill", body)["total_tokens"] == 3
    assert live.http.get("/health").json()["status"] == "ready"


def test_health_reports_a_dead_engine(serve: Serve) -> None:
    backend = Dying(SCRIPT)
    live = serve(backend)
    backend.fault = RuntimeError("a bug")
    response = live.http.post("/prefill", json={"prompt": "x"})
    assert (response.status_code, response.json()["error"]["code"]) == (500, "engine_error")
    health = live.http.get("/health")
    assert (health.status_code, health.json()["status"]) == (503, "failed")
    assert health.json()["reason"] == "the engine died: RuntimeError: a bug: see the verifier's log, and restart it"
    assert live.failed.wait(10)
    response = live.http.post("/prefill", json={"prompt": "x"})
    assert (response.status_code, response.json()["error"]["code"]) == (500, "engine_error")


def test_every_endpoint_but_health_needs_the_key(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), api_key="s3cret", wait=False)
    paths = [*REQUESTS, ("GET", "/sessions", None), ("DELETE", "/sessions/x", None)]
    for given in ("", "Bearer", "Bearer wrong", "s3cret", "Basic s3cret", "Bearer s3cret ext", "Bearer s\u00e9cret"):
        for method, path, body in paths:
            headers = {b"Authorization": given.encode()} if given else {}
            response = live.http.request(method, path, json=body, headers=headers)
            assert (response.status_code, response.json()["error"]["code"]) == (401, "unauthorized"), (given, path)
    live.http.headers["Authorization"] = "Bearer s3cret"
    live.wait_until_ready()
    assert live.post("/prefill", {"prompt": "x"})["tokens"]
    assert live.post("/verify", {"draft_tokens": []})["tokens"], "also without a session id"
    live.http.headers["Authorization"] = "bearer s3cret"  # RFC 9110: the case of the scheme does not matter
    assert live.post("/prefill", {"prompt": "x"})["tokens"]
