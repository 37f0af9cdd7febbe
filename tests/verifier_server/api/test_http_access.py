"""What callers see of each other and of the verifier, by key and by address."""

import logging
from typing import Any

import httpx
import pytest

from backends.scripted import ScriptedBackend
from tests.verifier_server.api.test_http_loading import REQUESTS
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from verifier_server.access import Access

FAR = {"X-Forwarded-For": "203.0.113.7"}  # uvicorn takes this for the address, as it comes from loopback
NEAR = {"X-Forwarded-For": "10.9.8.7"}
BODY: dict[str, Any] = {"session_id": "s", "prompt_ids": [256, 1, 2]}
ALL = [*REQUESTS, ("GET", "/sessions", None), ("DELETE", "/sessions/s", None), ("GET", "/sessions/s/stream", None)]


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def of_two_keys(live: LiveServer) -> None:
    """Let the verifier have two keys, until there is a setting for that."""

    class TwoKeys(Access):
        def admit(self, address: str | None, authorization: str, forwarded: Any = ()) -> Any:
            key = authorization.removeprefix("Bearer ")
            return Access(key, insecure=False).admit(address, authorization, forwarded)

    live.service.access = TwoKeys("any", insecure=False)


def test_addresses_from_elsewhere_are_refused_without_a_key(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    for method, path, body in ALL:
        response = live.http.request(method, path, json=body, headers=FAR)
        assert code(response) == (403, "forbidden"), path
        assert "'203.0.113.7'" in response.json()["error"]["message"]
    assert live.http.get("/health", headers=FAR).json() == {"status": "ready", "access": "forbidden"}
    assert live.post("/prefill", BODY, headers=NEAR)["total_tokens"] == 4
    assert len(live.service.sessions) == 1


def test_insecure_serves_everybody(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), insecure=True)
    assert live.post("/prefill", BODY, headers=FAR)["total_tokens"] == 4


def test_a_refusal_for_want_of_the_key_names_the_scheme(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), wait=False, api_key="s3cret")
    response = live.http.get("/model")
    assert code(response) == (401, "unauthorized")
    assert response.headers["www-authenticate"] == 'Bearer realm="specpair"'
    response = live.http.post("/verify", json={"draft_tokens": []})
    assert response.headers["www-authenticate"] == 'Bearer realm="specpair"', "past the router, too"


def test_health_needs_no_key_and_says_no_more_than_that(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), api_key="s3cret")
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        response = live.http.get("/health", headers=headers)
        assert (response.status_code, response.json()) == (200, {"status": "ready", "access": "unauthorized"})
    full = live.http.get("/health", headers={"Authorization": "Bearer s3cret"}).json()
    assert full == {"status": "ready", "model": "scripted-2", "sessions": 0}
    live.service.failure = "cannot read /home/somebody/model.gguf"
    response = live.http.get("/health")
    failed = {"status": "failed", "access": "unauthorized", "reason": "its log says why"}
    assert (response.status_code, response.json()) == (503, failed)


def test_the_list_holds_no_ids_without_a_key(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    live.post("/prefill", BODY)
    facts = {"prompt_len": 3, "total_tokens": 4, "finish_reason": None, "resident": True}
    for headers in ({}, NEAR):
        assert live.http.get("/sessions", headers=headers).json() == {"sessions": [facts]}


def test_whoever_holds_the_id_has_the_session_without_a_key(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    live.post("/prefill", BODY)
    assert live.post("/verify", {"session_id": "s", "position": 4, "draft_tokens": []}, headers=NEAR)["tokens"]
    assert live.http.delete("/sessions/s", headers=NEAR).status_code == 200


def test_a_session_of_another_key_is_unknown_in_every_way(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    of_two_keys(live)
    mine, theirs = ({"Authorization": f"Bearer {key}"} for key in ("mine", "theirs"))
    opened = live.post("/prefill", BODY, headers=mine)
    nowhere = {"session_id": "nowhere", "draft_tokens": []}
    guess = {"session_id": "s", "position": 4, "draft_tokens": []}

    def told(response: httpx.Response) -> str:
        assert code(response) == (404, "unknown_session")
        return str(response.json()["error"]["message"])

    unknown = told(live.http.post("/verify", json=nowhere, headers=theirs))
    assert told(live.http.post("/verify", json=guess, headers=theirs)) == unknown.replace("nowhere", "s", 1)
    assert told(live.http.delete("/sessions/s", headers=theirs)) == unknown.replace("nowhere", "s", 1)
    assert told(live.http.get("/sessions/s/stream", headers=theirs)) == unknown.replace("nowhere", "s", 1)
    [refused] = live.post("/verify/batch", {"items": [guess]}, headers=theirs)["results"]
    assert refused["error"]["code"] == "unknown_session"
    told(live.http.post("/verify", json={"draft_tokens": []}, headers=theirs))
    assert live.http.get("/sessions", headers=theirs).json() == {"sessions": []}

    texts = {"prompt_ids": [256, 1, 2], "max_tokens": 2, "session_id": "s"}
    assert live.post("/generate", texts, headers=theirs)["prompt_tokens"] == 3, "nor has it a conflict"
    assert live.http.delete("/sessions/s", headers=theirs).status_code == 200
    other = {"session_id": "s", "prompt_ids": [256, 9, 9, 9]}
    assert live.post("/prefill", other, headers=theirs)["prompt_len"] == 4, "no conflict tells of the other one"
    assert live.http.delete("/sessions/s", headers=theirs).status_code == 200
    [listed] = live.http.get("/sessions", headers=mine).json()["sessions"]
    assert (listed["session_id"], listed["total_tokens"]) == ("s", 4)
    assert live.post("/prefill", BODY, headers=mine) | {"timing": 0} == opened | {"timing": 0}
    assert live.post("/verify", guess, headers=mine)["total_tokens"] == 5


@pytest.mark.parametrize(
    ("given", "words"),
    [({}, ["no VERIFIER_API_KEY is set"]), ({"insecure": True}, ["VERIFIER_INSECURE is set"]), ({"api_key": "k"}, [])],
)
def test_one_line_at_the_start_says_that_there_is_no_key(
    serve: Serve, caplog: pytest.LogCaptureFixture, given: dict[str, Any], words: list[str]
) -> None:
    with caplog.at_level(logging.WARNING):
        serve(ScriptedBackend(SCRIPT), wait=False, **given).http.get("/health")
    said = [record.message for record in caplog.records]
    assert len(said) == len(words)
    assert all(word in line and "\n" not in line for word, line in zip(words, said, strict=True))
