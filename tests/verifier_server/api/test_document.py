"""The verifier's OpenAPI document covers every route, and matches the replies of the endpoints."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from starlette.routing import Route

from backends.scripted import Script, ScriptedBackend
from specpair.protocol import responses, service_responses
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain
from verifier_server.api.document import document
from verifier_server.api.operations import OPERATIONS
from verifier_server.app import create_app
from verifier_server.settings import Settings

PROMPT_IDS = [256, 1, 2]
TEXT = plain(SCRIPT, PROMPT_IDS, 60)


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    """A verifier with server-side drafting."""
    backend, draft = ScriptedBackend(SCRIPT, slots=2), ScriptedBackend(Script(seed=2, agreement=0.7), slots=2)
    server = LiveServer(Settings(backend="scripted"), backend, draft=draft)
    server.wait_until_ready()
    yield server
    server.close()


def test_document_lists_exactly_the_routes() -> None:
    app = create_app(Settings(backend="scripted"))
    served = {
        (method, route.path)
        for route in app.router.routes
        if isinstance(route, Route) and route.include_in_schema
        for method in (route.methods or set()) - {"HEAD"}  # which works where GET does
    }
    assert served == {(operation.method, operation.path) for operation in OPERATIONS}
    assert app.openapi() == document()


@pytest.mark.parametrize("key", [None, "secret"])
def test_document_and_page_need_no_key(serve: Serve, key: str | None) -> None:
    live = serve(api_key=key, wait=key is None)
    assert live.http.get("/openapi.json").json() == document(keyed=key is not None)
    assert live.http.get("/docs").status_code == 200


def checked(model: type[BaseModel], body: Any) -> Any:
    """`body`, validated strictly: no other keys, no conversion of types."""
    model.model_validate_json(json.dumps(body), extra="forbid", by_alias=True, by_name=False)
    return body


def reply(response: httpx.Response, model: type[BaseModel], status: int = 200) -> Any:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    if model is not responses.ErrorResponse:
        assert response.content.endswith(b"}\n"), "after curl, the shell's prompt begins a new line"
    return checked(model, response.json())


@pytest.mark.parametrize("explain", [False, True])
def test_replies_match_the_document(live: LiveServer, explain: bool) -> None:
    http = live.http
    for body in ({"prompt": "x"}, {"prompt_ids": PROMPT_IDS, "temperature": 0.5, "seed": 3}):
        opened = http.post("/prefill", json={**body, "max_tokens": 40, "explain": explain})
        assert ("decisions" in reply(opened, responses.PrefillResponse)) == explain
        session = {"session_id": opened.json()["session_id"]}
        for drafts in ([], TEXT[:3], [1, 2, 3]):
            judged = http.post(
                "/verify", json={**session, "position": opened.json()["position"], "draft_tokens": drafts}
            )
            assert ("decisions" in reply(judged, responses.VerifyResponse)) == explain
            assert judged.headers["x-session-id"] == opened.headers["x-session-id"] == session["session_id"]
        items = [{**session, "position": 4, "draft_tokens": []}, {"session_id": "none", "draft_tokens": []}]
        reply(http.post("/verify/batch", json={"items": items}), responses.BatchResponse)


@pytest.mark.parametrize("mode", ["target", "fused"])
@pytest.mark.parametrize("explain", [False, True])
def test_texts_match_the_document(live: LiveServer, mode: str, explain: bool) -> None:
    body = {"prompt": "x", "max_tokens": 12, "mode": mode, "explain": explain}
    reply(live.http.post("/generate", json=body), responses.GenerateResponse)
    events = dict(_operation("/generate").events)
    with live.http.stream("POST", "/generate", json={**body, "stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        found = list(_events(response))
    assert [name for name, _ in found][-1] == "end" and len(found) > 2
    for name, data in found:
        checked(events[name], data)


@pytest.mark.parametrize("explain", [False, True])
def test_session_streams_match_the_document(live: LiveServer, explain: bool) -> None:
    body = {"prompt_ids": PROMPT_IDS, "max_tokens": 5, "self_continue": True, "explain": explain}
    session = live.post("/prefill", body)["session_id"]
    events = dict(_operation("/sessions/{session_id}/stream").events)
    with live.http.stream("GET", f"/sessions/{session}/stream") as response:
        found = list(_events(response))
    assert [name for name, _ in found][-1] == "end" and len(found) >= 2
    for name, data in found:
        checked(events[name], data)


def _operation(path: str) -> Any:
    return next(each for each in OPERATIONS if each.path == path)


def _events(response: httpx.Response) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in response.iter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def test_other_endpoints_match_the_document(live: LiveServer) -> None:
    http = live.http
    session = live.post("/prefill", {"prompt": "x"})["session_id"]
    reply(http.get("/health"), service_responses.HealthResponse)
    reply(http.get("/live"), service_responses.LiveResponse)
    reply(http.get("/ready"), service_responses.ReadyResponse)
    assert http.get("/metrics").headers["content-type"].startswith("text/plain")
    reply(http.get("/model"), service_responses.ModelInfo)
    reply(http.get("/model?below=5"), service_responses.ModelInfo)
    reply(http.get("/vocabulary"), service_responses.VocabularyResponse)
    assert reply(http.get("/sessions"), service_responses.SessionsResponse)["sessions"]
    reply(http.post("/tokenize", json={"text": "x"}), service_responses.TokenizeResponse)
    reply(http.delete(f"/sessions/{session}"), service_responses.DeletedResponse)
    reply(http.delete(f"/sessions/{session}"), responses.ErrorResponse, 404)
