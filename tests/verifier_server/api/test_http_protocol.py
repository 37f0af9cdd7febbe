"""The protocol over HTTP: every endpoint, its fields, and the rules for sessions."""

import asyncio
from typing import Any

import httpx
import pytest

from backends.machine import machine_id
from backends.scripted import END, ScriptedBackend
from specpair.speculation.sampling.sampling import Sampling
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve, settings
from tests.verifier_server.engine.bench import plain
from verifier_server.app import create_app

PROMPT = "def main():"
PROMPT_IDS = [256, *PROMPT.encode()]
TEXT = plain(SCRIPT, PROMPT_IDS, 60)


def wrong(token: int) -> int:
    return (token + 1) % 256


def test_model_lists_limits_and_fingerprints(server: LiveServer) -> None:
    body = server.http.get("/model").json()
    fingerprint = body.pop("vocabulary")
    template = body.pop("chat_template")
    assert template is None
    pass_ms, wide = body.pop("pass_ms"), body.pop("wide_pass_ms")
    assert len(pass_ms) == 17
    assert min(pass_ms) > 0.0 and [tokens for tokens, _ in wide] == [32, 64, 128][: len(wide)]
    assert body.pop("identity") == server.http.get("/health").json()["identity"]
    assert body == {
        "model": "scripted-2",
        "backend": "scripted",
        "context_length": 512,
        "rows": 2,
        "kv_bytes": 0,
        "max_draft_tokens": 64,
        "trees": True,
        "predictions": True,
        "prefixes": True,
        "strategies": ["coupled", "deterministic", "greedy", "probabilistic", "threshold"],
        "self_continue": True,
        "modes": ["target"],
        "draft_model": None,
        "draft_pass_ms": None,
        "machine": machine_id(),
        "noise": "gumbel-1",
    }
    assert (fingerprint["size"], fingerprint["below"], fingerprint["begin"], fingerprint["ends"]) == (
        258,
        258,
        256,
        [257],
    )
    below = server.http.get("/model?below=100").json()["vocabulary"]
    assert (below["size"], below["below"]) == (258, 100)
    assert below["ordinary"] != fingerprint["ordinary"]


def test_tokenize_returns_token_ids(server: LiveServer) -> None:
    def ids(**body: Any) -> list[int]:
        return list(server.http.post("/tokenize/", json=body).raise_for_status().json()["token_ids"])

    assert ids(text="é<end>") == [256, *"é<end>".encode()]
    assert ids(text="é<end>", add_begin=False, parse_control=True) == [*"é".encode(), END]
    assert ids(text="") == [256]
    parts = [("a", True), ("<end>", False), ("<end>", True)]
    assert ids(parts=[{"text": text, "parse_control": control} for text, control in parts]) == [256, *b"a<end>", END]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (rb'{"text": "\ud800"}', "Invalid JSON"),
        (b"{}", "give either text or parts"),
        (b'{"text": "a", "parts": []}', "give either text or parts"),
        (b'{"parts": [], "add_begin": true}', "add_begin and parse_control belong to text"),
        (b'{"text": 5}', "text: Input should be a valid string"),
        (b'{"text": "a", "bos": true}', "bos: Extra inputs are not permitted"),
    ],
)
def test_tokenize_refuses_malformed_requests(server: LiveServer, body: bytes, words: str) -> None:
    reply = server.http.post("/tokenize", content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code == 422
    assert words in reply.json()["error"]["message"]


def test_prefill_reply_has_all_fields(server: LiveServer) -> None:
    response = server.http.post("/prefill", json={"prompt": PROMPT, "seed": 5, "temperature": 0.5, "top_k": 40})
    body = response.json()
    session_id, timing = body.pop("session_id"), body.pop("timing")
    assert response.headers["x-session-id"] == session_id
    assert len(session_id) == 32
    assert timing.keys() == {"queue_ms", "forward_ms", "sessions", "tokens"}
    told = server.http.get("/model").json()
    assert (body.pop("vocabulary"), body.pop("identity")) == (told["vocabulary"], told["identity"])
    assert body == {
        "prompt_len": 12,
        "prompt_ids": PROMPT_IDS,
        "position": 12,
        "tokens": plain(SCRIPT, PROMPT_IDS, 1, Sampling(5, 0.5, 40)),
        "total_tokens": 13,
        "finish_reason": None,
        "model": "scripted-2",
        "sampling": {
            "seed": 5,
            "temperature": 0.5,
            "top_k": 40,
            "top_p": 1.0,
            "strategy": "coupled",
            "noise": "gumbel-1",
        },
        "self_continue": False,
        "sources": "b",
    }


def test_verify_reply_has_all_fields(server: LiveServer) -> None:
    session = server.post("/prefill", {"prompt_ids": PROMPT_IDS})["session_id"]
    drafts = [*TEXT[1:4], wrong(TEXT[4]), 7]
    response = server.http.post("/verify", json={"session_id": session, "position": 13, "draft_tokens": drafts})
    body = response.json()
    assert response.headers["x-session-id"] == session
    timing = body.pop("timing")
    assert timing["forward_ms"] > 0
    assert body == {
        "position": 13,
        "accepted_prefix_len": 3,
        "judged": 5,
        "tokens": TEXT[1:5],
        "preds": TEXT[1:5],
        "sources": "aaarx",
        "total_tokens": 17,
        "finish_reason": None,
    }


def test_omitted_seed_is_drawn_and_reported(server: LiveServer) -> None:
    replies = [server.post("/prefill", {"prompt": PROMPT, "temperature": 1.0, "max_tokens": 20}) for _ in range(2)]
    seeds = [reply["sampling"]["seed"] for reply in replies]
    assert seeds[0] != seeds[1]
    for reply, seed in zip(replies, seeds, strict=True):
        body = {"session_id": reply["session_id"], "position": 12, "draft_tokens": reply["tokens"]}
        assert server.post("/verify", body)["tokens"] == plain(SCRIPT, PROMPT_IDS, 2, Sampling(seed, 1.0))


@pytest.mark.parametrize("slash", ["", "/"])
def test_paths_work_with_and_without_trailing_slash(server: LiveServer, slash: str) -> None:
    session = server.post(f"/prefill{slash}", {"prompt": PROMPT})["session_id"]
    assert server.post(f"/verify{slash}", {"session_id": session, "draft_tokens": []})["tokens"]
    assert server.post(f"/generate{slash}", {"prompt": PROMPT, "max_tokens": 2})["token_ids"] == TEXT[:2]
    for path in ("/health", "/model", "/sessions"):
        assert server.http.get(path + slash).status_code == 200
    assert server.http.delete(f"/sessions/{session}{slash}").json() == {"session_id": session, "deleted": True}
    for path, allowed in (("/verify", "POST"), ("/health", "GET, HEAD")):
        response = server.http.patch(path + slash)
        assert (response.status_code, response.headers["allow"]) == (405, allowed)


def simple_client(http: httpx.Client, prompt: str, draft: Any) -> list[int]:
    """The loop of a client that sends neither session ids nor positions. `draft`: text to draft tokens."""
    http.post("/prefill/", json={"prompt": prompt})
    text: list[int] = []
    for _ in range(len(TEXT)):
        drafts = draft(text)
        reply = http.post("/verify/", json={"draft_tokens": drafts}).json()
        accepted = reply["accepted_prefix_len"]
        text += drafts[:accepted] or reply["preds"][:1]
        if reply["finish_reason"] is not None and 12 + len(text) == reply["total_tokens"]:
            break
    return text


@pytest.mark.parametrize(
    "draft",
    [
        lambda text: [],
        lambda text: [0, 0],
        lambda text: [*TEXT[len(text) : len(text) + 3], 0],
        lambda text: TEXT[len(text) : len(text) + 5],
        lambda text: TEXT[len(text) : len(text) + len(text) % 4],
    ],
    ids=["none", "wrong", "right, then wrong", "right", "varying"],
)
def test_simple_client_gets_the_text_of_the_target(serve: Serve, draft: Any) -> None:
    live = serve(ScriptedBackend(SCRIPT, context_length=12 + len(TEXT)))
    assert simple_client(live.http, PROMPT, draft) == TEXT


def test_repeated_prefill_is_answered_from_the_record(serve: Serve) -> None:
    backend = ScriptedBackend(SCRIPT)
    live = serve(backend)
    body = {"session_id": "mine", "prompt": PROMPT, "temperature": 1.0}
    first = live.post("/prefill", body)
    passes = backend.passes
    again = live.post("/prefill", body)
    assert backend.passes == passes
    assert {**again, "timing": None} == {**first, "timing": None}, "including the drawn seed"
    live.post("/verify", {"session_id": "mine", "position": 12, "draft_tokens": first["tokens"]})
    later = live.post("/prefill", body)
    assert later["tokens"][:1] == first["tokens"]
    assert later["total_tokens"] == 14


def test_sessions_are_listed_and_deleted(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT, slots=1), wait=False, api_key="s3cret")
    live.http.headers["Authorization"] = "Bearer s3cret"
    live.wait_until_ready()
    for name in ("a", "b"):
        live.post("/prefill", {"session_id": name, "prompt": PROMPT, "max_tokens": 1 if name == "b" else None})
    listed = {"prompt_len": 12, "total_tokens": 13}
    assert live.http.get("/sessions").json()["sessions"] == [
        {"session_id": "a", **listed, "finish_reason": None, "resident": False, "prompt_read": 0},
        {"session_id": "b", **listed, "finish_reason": "length", "resident": False, "prompt_read": 12},
    ]
    assert live.http.delete("/sessions/a").status_code == 200
    assert live.http.delete("/sessions/a").status_code == 404
    assert [each["session_id"] for each in live.http.get("/sessions").json()["sessions"]] == ["b"]
    gone = live.http.post("/verify", json={"session_id": "a", "draft_tokens": []})
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "unknown_session")
    live.http.delete("/sessions/b")
    gone = live.http.post("/verify", json={"draft_tokens": []})
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "unknown_session"), "the latest session is deleted"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/realtime", "/verify"])
def test_a_websocket_is_refused_as_such(server: LiveServer, path: str) -> None:
    handshake = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "eA==",
        "Sec-WebSocket-Version": "13",
    }
    response = server.http.get(path, headers=handshake)
    assert (response.status_code, response.json()["error"]["code"]) == (426, "no_websocket")
    assert server.http.get("/health", headers=handshake).status_code == 200  # the offer is ignored


@pytest.mark.parametrize("slash", ["", "/"])
def test_paths_work_below_the_root_path_of_a_proxy(slash: str) -> None:
    """As with `uvicorn --root-path /verifier`, which puts this prefix before every path."""
    transport = httpx.ASGITransport(create_app(settings()), root_path="/verifier")

    async def statuses() -> list[int]:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/verifier") as http:
            verify = await http.post(f"/verify{slash}", json={"session_id": "s", "draft_tokens": []})
            return [response.status_code for response in (verify, await http.get(f"/health{slash}"))]

    assert asyncio.run(statuses()) == [503, 503], "the model is not loaded"
