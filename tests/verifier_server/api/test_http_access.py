"""Access over HTTP: which requests are refused, and which sessions a caller can use, by key and by address."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.scripted import ScriptedBackend
from specpair.http_service.keys import key_file
from specpair.http_service.keys.key_file import StoredKey, digest_of
from tests.verifier_server.conftest import SCRIPT, Serve
from tests.verifier_server.support import REQUESTS
from verifier_server.app import create_app
from verifier_server.settings import Settings

FAR = {
    "X-Forwarded-For": "203.0.113.7"
}  # uvicorn takes this as the client's address, since the connection comes from loopback
NEAR = {"X-Forwarded-For": "10.9.8.7"}
BODY: dict[str, Any] = {"session_id": "s", "prompt_ids": [256, 1, 2]}
ALL = [*REQUESTS, ("GET", "/sessions", None), ("DELETE", "/sessions/s", None), ("GET", "/sessions/s/stream", None)]


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_public_addresses_are_refused_without_a_key(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    for method, path, body in ALL:
        response = live.http.request(method, path, json=body, headers=FAR)
        assert code(response) == (403, "forbidden"), path
        assert "'203.0.113.7'" in response.json()["error"]["message"]
    assert live.http.get("/health", headers=FAR).json() == {"status": "ready", "access": "forbidden"}
    assert live.post("/prefill", BODY, headers=NEAR)["total_tokens"] == 4
    assert len(live.service.sessions) == 1


@pytest.mark.parametrize(("client", "status"), [("203.0.113.9", 200), ("203.0.113.8", 403)])
def test_public_address_of_this_machine_is_served_to_itself_alone(client: str, status: int) -> None:
    transport = httpx.ASGITransport(create_app(Settings(backend="scripted")), client=(client, 5))

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://203.0.113.9:8000") as http:
            return await http.get("/sessions")

    assert asyncio.run(ask()).status_code == status


def test_insecure_serves_every_address(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), insecure=True)
    assert live.post("/prefill", BODY, headers=FAR)["total_tokens"] == 4


def test_unauthorized_names_the_scheme(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), wait=False, api_key="s3cret")
    response = live.http.get("/model")
    assert code(response) == (401, "unauthorized")
    assert response.headers["www-authenticate"] == 'Bearer realm="specpair"'
    response = live.http.post("/verify", json={"draft_tokens": []})
    assert response.headers["www-authenticate"] == 'Bearer realm="specpair"', "also without the router"


def test_health_without_the_key_reports_the_status_only(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), api_key="s3cret")
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        response = live.http.get("/health", headers=headers)
        assert (response.status_code, response.json()) == (200, {"status": "ready", "access": "unauthorized"})
    full = live.http.get("/health", headers={"Authorization": "Bearer s3cret"}).json()
    assert full.pop("identity")
    assert full == {
        "status": "ready",
        "model": "scripted-2",
        "sessions": 0,
        "texts": 0,
        "waiting": 0,
        "generated_tokens": 0,
        "pass_seconds": 0.0,
    }
    live.service.loader.failure = "cannot read /home/user/model.gguf"
    response = live.http.get("/health")
    failed = {"status": "failed", "access": "unauthorized", "reason": "its log says why"}
    assert (response.status_code, response.json()) == (503, failed)


def test_session_list_has_no_ids_without_a_key(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    live.post("/prefill", BODY)
    facts = {"prompt_len": 3, "total_tokens": 4, "finish_reason": None, "resident": True, "prompt_read": 3}
    for headers in ({}, NEAR):
        assert live.http.get("/sessions", headers=headers).json() == {"sessions": [facts]}


def test_session_id_gives_access_without_a_key(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    live.post("/prefill", BODY)
    assert live.post("/verify", {"session_id": "s", "position": 4, "draft_tokens": []}, headers=NEAR)["tokens"]
    assert live.http.delete("/sessions/s", headers=NEAR).status_code == 200


def test_session_of_another_key_is_unknown_to_every_endpoint(serve: Serve, tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        key_file.add(tmp_path / "keys.toml", StoredKey(name, digest_of(name)))
    live = serve(ScriptedBackend(SCRIPT), keys_file=tmp_path / "keys.toml")
    mine, theirs = ({"Authorization": f"Bearer {key}"} for key in ("mine", "theirs"))
    opened = live.post("/prefill", BODY, headers=mine)
    nowhere = {"session_id": "nowhere", "draft_tokens": []}
    request = {"session_id": "s", "position": 4, "draft_tokens": []}

    def message(response: httpx.Response) -> str:
        assert code(response) == (404, "unknown_session")
        return str(response.json()["error"]["message"])

    unknown = message(live.http.post("/verify", json=nowhere, headers=theirs))
    assert message(live.http.post("/verify", json=request, headers=theirs)) == unknown.replace("nowhere", "s", 1)
    assert message(live.http.delete("/sessions/s", headers=theirs)) == unknown.replace("nowhere", "s", 1)
    assert message(live.http.get("/sessions/s/stream", headers=theirs)) == unknown.replace("nowhere", "s", 1)
    [refused] = live.post("/verify/batch", {"items": [request]}, headers=theirs)["results"]
    assert refused["error"]["code"] == "unknown_session"
    message(live.http.post("/verify", json={"draft_tokens": []}, headers=theirs))
    assert live.http.get("/sessions", headers=theirs).json() == {"sessions": []}

    texts = {"prompt_ids": [256, 1, 2], "max_tokens": 2, "session_id": "s"}
    assert live.post("/generate", texts, headers=theirs)["prompt_tokens"] == 3, (
        "no conflict with the other key's session"
    )
    assert live.http.delete("/sessions/s", headers=theirs).status_code == 200
    other = {"session_id": "s", "prompt_ids": [256, 9, 9, 9]}
    assert live.post("/prefill", other, headers=theirs)["prompt_len"] == 4, (
        "no conflict reveals the other key's session"
    )
    assert live.http.delete("/sessions/s", headers=theirs).status_code == 200
    [listed] = live.http.get("/sessions", headers=mine).json()["sessions"]
    assert (listed["session_id"], listed["total_tokens"]) == ("s", 4)
    assert live.post("/prefill", BODY, headers=mine) | {"timing": 0} == opened | {"timing": 0}
    assert live.post("/verify", request, headers=mine)["total_tokens"] == 5


@pytest.mark.parametrize(
    ("given", "words"),
    [({}, ["no VERIFIER_API_KEY is set"]), ({"insecure": True}, ["VERIFIER_INSECURE is set"]), ({"api_key": "k"}, [])],
)
def test_start_without_a_key_logs_one_line(
    serve: Serve, caplog: pytest.LogCaptureFixture, given: dict[str, Any], words: list[str]
) -> None:
    with caplog.at_level(logging.WARNING):
        serve(ScriptedBackend(SCRIPT), wait=False, **given).http.get("/health")
    lines = [record.message for record in caplog.records]
    assert len(lines) == len(words)
    assert all(word in line and "\n" not in line for word, line in zip(words, lines, strict=True))
