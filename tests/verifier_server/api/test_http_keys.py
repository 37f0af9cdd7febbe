"""Keys over HTTP: their limits on every way in, what is counted for them, and requests of web pages."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.http_service.keys.gate import UsageCounts
from specpair.http_service.keys.key_file import KeyLimits
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import bearer, keys_in

PROMPT = [256, 1, 2]
TEXT = [*PROMPT, *plain(SCRIPT, PROMPT, 60)]
WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/prefill", {"prompt_ids": PROMPT}),
    ("/verify", {"session_id": "s", "position": 4, "draft_tokens": []}),
    ("/verify/batch", {"items": [{"session_id": "s", "position": 4, "draft_tokens": []}]}),
    ("/generate", {"prompt_ids": PROMPT, "max_tokens": 2}),
    ("/v1/completions", {"prompt": PROMPT, "max_tokens": 2}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ("/tokenize", {"text": "x"}),
    ("/tokenize", {"content": "x"}),
    ("/detokenize", {"tokens": PROMPT}),
    ("/apply-template", {"messages": [{"role": "user", "content": "x"}]}),
)


class Keyed:
    """A verifier with keys, each of which is its own name."""

    def __init__(self, serve: Serve, path: Path, **limits: KeyLimits) -> None:
        self.live: LiveServer = serve(ScriptedBackend(SCRIPT, slots=8), keys_file=keys_in(path, **limits))

    def post(self, path: str, body: Any, name: str, **headers: str) -> httpx.Response:
        return self.live.http.post(path, json=body, headers=bearer(name) | headers)

    def usage(self, name: str) -> Any:
        response = self.live.http.get("/usage", headers=bearer(name))
        assert response.status_code == 200, response.text
        return response.json()["keys"]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def limited(response: httpx.Response, *, openai: bool = False) -> float:
    """The wait of a reply that says 429."""
    assert response.status_code == 429, response.text
    error = response.json()["error"]
    code = "rate_limit_exceeded" if openai else "rate_limited"
    assert error["code"] == code
    assert int(response.headers["retry-after"]) >= error["retry_after"] > int(response.headers["retry-after"]) - 1
    return float(error["retry_after"])


def usage(name: str, *counts: int) -> dict[str, Any]:
    fields = ("requests", "prompt_tokens", "generated_tokens", "draft_tokens", "accepted_tokens")
    return {"key": name, **dict(zip(fields, counts, strict=True))}


@pytest.mark.parametrize(("path", "body"), WAYS, ids=[f"{path} {', '.join(body)}" for path, body in WAYS])
def test_tokens_a_second_limit_every_way_in(serve: Serve, keys: Path, path: str, body: Any) -> None:
    keyed = Keyed(serve, keys, slow=KeyLimits(tokens_per_second=10), fast=KeyLimits())
    assert keyed.post("/generate", {"prompt_ids": PROMPT, "max_tokens": 50}, "slow").status_code == 200
    wait = limited(keyed.post(path, body, "slow"), openai=path.startswith("/v1"))
    assert 3.0 < wait <= 4.0, "50 tokens were spent of 10 in the bucket"
    assert keyed.post(path, body, "fast").status_code != 429
    for free in ("/model", "/sessions", "/usage", "/v1/models"):
        assert keyed.live.http.get(free, headers=bearer("slow")).status_code == 200, free


def test_usage_counts_each_token_once(serve: Serve, keys: Path) -> None:
    keyed = Keyed(serve, keys, k=KeyLimits(), other=KeyLimits(), boss=KeyLimits())
    keyed.post("/prefill", {"session_id": "s", "prompt_ids": PROMPT}, "k")
    assert keyed.usage("k") == [usage("k", 1, 3, 1, 0, 0)]
    good = {"session_id": "s", "position": 4, "draft_tokens": [*TEXT[4:7], TEXT[7] + 1]}
    for _ in range(2):  # the second is answered from the record
        assert keyed.post("/verify", good, "k").json()["total_tokens"] == 8
    assert keyed.usage("k") == [usage("k", 3, 3, 5, 4, 3)]
    longer = {"session_id": "s", "position": 4, "draft_tokens": TEXT[4:10]}  # four of them are committed
    assert keyed.post("/verify/batch", {"items": [longer]}, "k").json()["results"][0]["total_tokens"] == 11
    assert keyed.usage("k") == [usage("k", 4, 3, 8, 6, 5)]
    keyed.post("/generate", {"prompt_ids": PROMPT, "max_tokens": 7}, "k")
    assert keyed.usage("k") == [usage("k", 5, 6, 15, 6, 5)]
    keyed.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 5}, "k")
    assert keyed.usage("k") == [usage("k", 6, 9, 20, 6, 5)]
    assert keyed.usage("other") == [usage("other", 0, 0, 0, 0, 0)]
    assert [each["key"] for each in keyed.usage("boss")] == ["boss", "k", "other"]
    assert keyed.live.service.gate.accounts.usage()["k"] == UsageCounts(6, 9, 20, 6, 5)


def test_tokens_of_self_continuation_are_counted(serve: Serve, keys: Path) -> None:
    keyed = Keyed(serve, keys, k=KeyLimits())
    keyed.post("/prefill", {"session_id": "s", "prompt_ids": PROMPT, "max_tokens": 6, "self_continue": True}, "k")
    with keyed.live.http.stream("GET", "/sessions/s/stream", headers=bearer("k")) as stream:
        stream.read()
    keyed.live.http.delete("/sessions/s", headers=bearer("k"))
    assert keyed.usage("k") == [usage("k", 1, 3, 6, 0, 0)]


def test_server_side_drafting_counts_its_drafts(serve: Serve, keys: Path) -> None:
    draft = ScriptedBackend(Script(seed=2, agreement=0.7), slots=2)
    live = serve(ScriptedBackend(SCRIPT, slots=2), draft=draft, keys_file=keys_in(keys, "k"))
    body = {"prompt_ids": PROMPT, "max_tokens": 30, "mode": "fused"}
    for stream in (False, True):
        before = live.http.get("/usage", headers=bearer("k")).json()["keys"][0]
        reply = live.http.post("/generate", json=body | {"stream": stream}, headers=bearer("k"))
        told = json.loads(reply.text.rpartition("data: ")[2]) if stream else reply.json()
        after = live.http.get("/usage", headers=bearer("k")).json()["keys"][0]
        grown = [after[name] - before[name] for name in after if name != "key"]
        speculation = told["speculation"]
        assert grown == [1, 3, 30, speculation["drafted"], speculation["accepted"]]


SHORT = {"prompt_ids": PROMPT, "max_tokens": 1}


def slow(serve: Serve, keys: Path, **limits: KeyLimits) -> LiveServer:
    """A verifier with keys whose passes take a hundredth of a second."""
    backend = ScriptedBackend(Script(seed=2, seconds_per_pass=0.01), slots=4, context_length=4096)
    return serve(backend, keys_file=keys_in(keys, **limits))


@contextmanager
def writing(live: LiveServer, name: str) -> Iterator[None]:
    """A long text of this key is written within the block."""
    long = {"prompt_ids": PROMPT, "max_tokens": 2000, "stream": True}
    with live.http.stream("POST", "/generate", json=long, headers=bearer(name)) as stream:
        lines = stream.iter_lines()  # kept: it would close the stream at its end
        next(lines)
        yield


def test_requests_in_flight_are_limited(serve: Serve, keys: Path) -> None:
    live = slow(serve, keys, one=KeyLimits(requests=1), free=KeyLimits())

    def status(name: str) -> int:
        return live.http.post("/generate", json=SHORT, headers=bearer(name)).status_code

    with writing(live, "one"):
        assert limited(live.http.post("/generate", json=SHORT, headers=bearer("one"))) >= 0.05
        assert limited(live.http.post("/v1/completions", json={"prompt": "x"}, headers=bearer("one")), openai=True)
        assert status("free") == 200
        assert live.http.get("/model", headers=bearer("one")).status_code == 200, "this one makes no text"
    with ThreadPoolExecutor(1) as thread:  # the stream was cut: its request is over as soon as the server sees it
        assert thread.submit(lambda: next(each for each in iter(lambda: status("one"), None) if each == 200)).result(20)


def test_sessions_of_a_key_are_limited(serve: Serve, keys: Path) -> None:
    live = slow(serve, keys, one=KeyLimits(sessions=1), two=KeyLimits(sessions=2))
    with writing(live, "one"):
        refused = live.http.post("/generate", json=SHORT, headers=bearer("one"))
        assert limited(refused) >= 1 and "your key may have 1" in refused.json()["error"]["message"]
        limited(live.http.post("/v1/completions", json={"prompt": PROMPT}, headers=bearer("one")), openai=True)
    with writing(live, "two"):
        assert live.http.post("/generate", json=SHORT, headers=bearer("two")).status_code == 200


PAGE = {"Origin": "https://app.example"}


@pytest.fixture
def plain_verifier(serve: Serve) -> LiveServer:
    return serve(ScriptedBackend(SCRIPT))


def test_page_of_another_origin_cannot_start_a_text(plain_verifier: LiveServer) -> None:
    """A browser sends a POST with this content type at once, without asking by a preflight."""
    live = plain_verifier
    for path, body in WAYS:
        content = json.dumps(body)
        response = live.http.post(path, content=content, headers=PAGE | {"Content-Type": "text/plain"})
        assert (response.status_code, response.json()["error"]["code"]) == (403, "foreign_origin"), path
        assert "cors_origins" in response.json()["error"]["message"].lower()
    assert len(live.service.sessions) == 0 and live.service.gate.accounts.usage() == {}
    own = live.http.post("/generate", json={"prompt": "x", "max_tokens": 1}, headers={"Origin": live.url})
    assert own.status_code == 200, "as from the page /docs"


def test_pages_of_allowed_origins_are_served(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), api_key="k", cors_origins="https://app.example, http://localhost:3000")
    asked = PAGE | {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-session-id,x-stainless-os",
    }
    preflight = live.http.options("/generate", headers=asked)
    assert preflight.status_code == 200, "a browser sends no key with it"
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
    text = {"prompt": "x", "max_tokens": 1}
    response = live.http.post("/generate", json=text, headers=PAGE | bearer("k"))
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == "https://app.example"
    exposed = {name.strip() for name in response.headers["access-control-expose-headers"].split(",")}
    assert exposed == {"X-Session-Id", "X-Request-Id", "X-Specpair-Ignored", "Retry-After"}
    refused = live.http.post("/verify", json=text, headers=PAGE)
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://app.example", "the page can read the error"
    other = live.http.post("/generate", json=text, headers=bearer("k") | {"Origin": "https://other.example"})
    assert (other.status_code, other.json()["error"]["code"]) == (403, "foreign_origin")
    assert "access-control-allow-origin" not in other.headers


APP = "vscode-webview://0q1w2e3r4t5y"


@pytest.mark.parametrize(
    ("allowed", "origin", "answer"),
    [
        ("vscode-webview://*", APP, APP),
        ("app://a, null", "null", "null"),
        ("*", APP, "*"),
        ("app://a", APP, None),
        ("app://a", "null", None),
        ("*", "null", None),
    ],
)
def test_preflights_for_private_networks_are_answered_for_allowed_origins(
    serve: Serve, allowed: str, origin: str, answer: str | None
) -> None:
    live = serve(ScriptedBackend(SCRIPT), wait=False, cors_origins=allowed)
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Private-Network": "true",
    }
    preflight = live.http.options("/v1/chat/completions", headers=asked)
    assert preflight.status_code == (200 if answer else 400)
    if answer:
        assert preflight.headers["access-control-allow-origin"] == answer
        assert preflight.headers["access-control-allow-private-network"] == "true"
    page = live.http.get("/live", headers={"Origin": origin})
    assert page.status_code == (403 if answer is None else 200)
