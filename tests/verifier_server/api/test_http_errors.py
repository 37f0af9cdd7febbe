"""Invalid requests: all errors have one shape, and the verifier keeps serving."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain

PROMPT_IDS = [256, 1, 2, 3]
TEXT = plain(SCRIPT, PROMPT_IDS, 60)
S = {"session_id": "steady"}  # a session with 5 tokens, 4 of them the prompt


@dataclass
class Case:
    """An invalid request and the expected error."""

    name: str
    status: int
    code: str
    words: str
    path: str = "/verify"
    body: Any = None
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    def content(self) -> bytes | Iterator[bytes] | None:
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body).encode()


def verify(name: str, status: int, code: str, words: str, drafts: Any, **more: Any) -> Case:
    details = more.pop("details", {})
    return Case(name, status, code, words, body={**S, "position": 5, "draft_tokens": drafts, **more}, details=details)


def prefill(name: str, status: int, code: str, words: str, **body: Any) -> Case:
    return Case(name, status, code, words, path="/prefill", body=body)


CASES = [
    verify("id too large", 422, "token_out_of_range", "draft_tokens.1: token id 258 is outside", [1, 258]),
    verify("id far too large", 422, "token_out_of_range", "draft_tokens.0: token id 1000000000000", [10**12]),
    verify("negative id", 422, "token_out_of_range", "draft_tokens.2: token id -1 is", [1, 2, -1]),
    verify("float id", 422, "invalid_request", "draft_tokens.0: Input should be a valid integer", [1.0]),
    verify("ids in no list", 422, "invalid_request", "draft_tokens: Input should be a valid array", 5),
    verify("10,000 drafts", 422, "too_many_drafts", "10000 new draft tokens", [1] * 10_000, details={"limit": 64}),
    verify("one draft too many", 422, "too_many_drafts", "65 new draft tokens", [1] * 65, details={"limit": 64}),
    verify("beyond", 409, "position_beyond_committed", "position 6", [1], position=6, details={"total_tokens": 5}),
    verify(
        "far beyond",
        409,
        "position_beyond_committed",
        "lies beyond the 5",
        [],
        position=9**40,
        details={"total_tokens": 5},
    ),
    verify("inside", 422, "position_inside_prompt", "position 3", [1], position=3, details={"total_tokens": 5}),
    verify("negative position", 422, "invalid_request", "position: Input should be greater", [], position=-1),
    verify("float position", 422, "invalid_request", "position: Input should be a valid integer", [], position=5.0),
    verify("unknown session", 404, "unknown_session", "no session missing", [1], session_id="missing"),
    Case("no body", 422, "invalid_request", "Invalid JSON: EOF"),
    Case("not JSON", 422, "invalid_request", "Invalid JSON", body=b"draft_tokens=1"),
    Case("a list", 422, "invalid_request", "Input should be an object", body=[1, 2]),
    Case("too large, declared", 413, "body_too_large", "the body has 65537 bytes", body=b" " * 65537),
    Case(
        "sessions disagree",
        400,
        "session_mismatch",
        "X-Session-Id says other, the body says steady",
        body={**S, "draft_tokens": []},
        headers={"X-Session-Id": "other"},
    ),
    Case(
        "bad session header",
        422,
        "invalid_request",
        "X-Session-Id: not a session id",
        body={"draft_tokens": []},
        headers={"X-Session-Id": "a b"},
    ),
    prefill("top_k too large", 422, "invalid_request", "top_k: Input should be less", prompt="x", top_k=2**63),
    prefill("empty prompt", 422, "empty_prompt", "the prompt is empty", prompt=""),
    prefill("no prompt ids", 422, "empty_prompt", "the prompt is empty", prompt_ids=[]),
    prefill("no prompt", 422, "invalid_request", "give either prompt or prompt_ids"),
    prefill("prompt id too large", 422, "token_out_of_range", "prompt_ids.1: token id 258", prompt_ids=[1, 258]),
    prefill("prompt as long as the context", 422, "prompt_too_long", "has 512 tokens", prompt_ids=[1] * 512),
    prefill("text that cannot fit", 422, "prompt_too_long", "prompt: 3585 bytes are more than 512", prompt="x" * 3585),
    Case("long text", 422, "prompt_too_long", "text: 4000 bytes", path="/tokenize", body={"text": "x" * 4000}),
    prefill("bad temperature", 422, "invalid_request", "temperature: Input", prompt="x", temperature=-1),
    prefill("misspelt option", 422, "invalid_request", "temprature: Extra", prompt="x", temprature=1),
    Case("generate from nothing", 422, "empty_prompt", "the prompt is empty", path="/generate", body={"prompt": ""}),
    Case("unknown path", 404, "not_found", "there is nothing at /prefil:", path="/prefil", body={"prompt": "x"}),
    Case("path with a bad name", 404, "unknown_session", "no session x", path="/sessions/x", method="DELETE"),
    Case("wrong method", 405, "method_not_allowed", "GET is not possible on /verify", method="GET"),
    Case("wrong method on health", 405, "method_not_allowed", "POST is not", path="/health", body={}),
    Case("below is no number", 422, "invalid_request", "below: 'x'", path="/model?below=x", method="GET"),
    Case("below in other digits", 422, "invalid_request", "below: '²'", path="/model?below=%C2%B2", method="GET"),
    Case("below is huge", 422, "invalid_request", "below", path="/model?below=" + "9" * 5000, method="GET"),
]


@pytest.fixture(scope="module")
def steady(server: LiveServer) -> LiveServer:
    server.post("/prefill", {**S, "prompt_ids": PROMPT_IDS})
    return server


def check_still_serving(server: LiveServer) -> None:
    """Check that the session is unchanged and that a new session works."""
    assert server.post("/verify", {**S, "position": 4, "draft_tokens": []})["total_tokens"] == 5
    server.post("/prefill", {"session_id": "fresh", "prompt_ids": PROMPT_IDS})
    reply = server.post("/verify", {"session_id": "fresh", "position": 4, "draft_tokens": TEXT[:4]})
    assert reply["tokens"] == TEXT[:5]
    server.http.delete("/sessions/fresh")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_error_has_its_status_code_and_words(steady: LiveServer, case: Case) -> None:
    response = steady.http.request(
        case.method, case.path, content=case.content(), headers={"Content-Type": "application/json", **case.headers}
    )
    assert response.status_code == case.status, response.text
    error = response.json()["error"]
    assert response.json().keys() == {"error"}
    assert error["code"] == case.code
    assert error["type"] == "invalid_request_error"
    assert case.words in error["message"]
    assert "\n" not in error["message"]
    assert {key: error[key] for key in case.details} == case.details
    check_still_serving(steady)


def test_too_large_body_without_content_length_is_refused(steady: LiveServer) -> None:
    chunks = (b" " * 1000 for _ in range(66))
    response = steady.http.post("/verify", content=chunks)
    assert response.status_code == 413
    assert response.json()["error"]["message"] == "the body is larger than the 65536 bytes this server takes"
    check_still_serving(steady)


def test_internal_error_has_the_same_shape(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    live = serve()

    def broken(*_arguments: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(live.service, "model", broken)
    response = live.http.get("/model")
    assert response.status_code == 500
    assert response.json()["error"] == {
        "code": "internal_error",
        "type": "server_error",
        "message": "a fault of the verifier (ZeroDivisionError): see its log",
    }
    with live.client() as another:
        assert another.get("/health").status_code == 200
