"""Requests at the same time, and self-continuation."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from backends.scripted import ScriptedBackend
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.sampling.sampling import Sampling
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve, settings
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import Gated, drafting_client
from verifier_server.app import create_app
from verifier_server.engine.sequence_state import LEAD


def test_concurrent_clients_get_their_own_texts(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT, slots=3, max_batch_tokens=32), max_drafts=8)
    with ThreadPoolExecutor(8) as threads:
        for text, expected in threads.map(lambda number: drafting_client(live, number), range(8)):
            assert text == expected


def test_retry_after_a_lost_reply_is_answered_from_the_record(serve: Serve) -> None:
    backend = Gated()
    live = serve(backend)
    ids = [256, 1, 2]
    text = plain(SCRIPT, ids, 10)
    live.post("/prefill", {"session_id": "s", "prompt_ids": ids})
    passes = backend.passes
    body = {"session_id": "s", "position": 4, "draft_tokens": [*text[1:4], 0]}
    backend.close_gate()
    with live.client() as impatient, pytest.raises(httpx.ReadTimeout):
        impatient.post("/verify", json=body, timeout=httpx.Timeout(20, read=0.01))
    assert backend.entered.wait(20)
    backend.gate.set()
    reply = live.post("/verify", body)
    assert (reply["tokens"], reply["accepted_prefix_len"], reply["judged"]) == (text[1:5], 3, 0)
    assert backend.passes == passes + 1


def test_the_record_answers_while_the_model_runs(serve: Serve) -> None:
    backend = Gated()
    live = serve(backend)
    ids = [256, 1, 2]
    text = plain(SCRIPT, ids, 10)
    live.post("/prefill", {"session_id": "s", "prompt_ids": ids})
    body = {"session_id": "s", "position": 4, "draft_tokens": text[1:4]}
    first = live.post("/verify", body)
    backend.close_gate()
    with ThreadPoolExecutor(1) as thread:
        other = thread.submit(live.http.post, "/prefill", json={"session_id": "t", "prompt_ids": ids})
        assert backend.entered.wait(20)
        with live.client() as client:
            again = client.post("/verify", json=body).json()
        backend.gate.set()
        assert other.result(20).status_code == 200
    assert (again["tokens"], again["sources"], again["judged"]) == (first["tokens"], first["sources"], 0)


def test_session_deleted_during_a_verify_still_gets_its_reply(serve: Serve) -> None:
    backend = Gated()
    live = serve(backend)
    ids = [256, 1, 2]
    body = {"session_id": "s", "prompt_ids": ids}
    live.post("/prefill", body)
    backend.close_gate()
    with ThreadPoolExecutor(1) as thread:
        judged = thread.submit(live.http.post, "/verify", json={"session_id": "s", "position": 4, "draft_tokens": []})
        assert backend.entered.wait(20)
        with live.client() as other:
            assert other.delete("/sessions/s").status_code == 200
        backend.gate.set()
        assert judged.result(20).json()["tokens"] == plain(SCRIPT, ids, 2)[1:]
    assert live.http.post("/verify", json={"session_id": "s", "draft_tokens": []}).status_code == 404
    assert live.post("/prefill", body)["tokens"] == plain(SCRIPT, ids, 1), "the id can be used again"


@pytest.mark.parametrize(
    ("address", "key", "code"),
    [
        ("192.0.2.1", None, "implicit_session_refused"),
        ("[2001:db8::1]", None, "implicit_session_refused"),
        ("example.org", None, "foreign_host"),
        ("192.0.2.1", "key", "model_loading"),  # the check is passed; no model is loaded in this test
        ("127.0.0.1", None, "model_loading"),
        ("127.8.8.8", None, "model_loading"),
        ("[::1]", None, "model_loading"),
        ("localhost", None, "model_loading"),
    ],
)
def test_implicit_sessions_need_loopback_or_a_key(address: str, key: str | None, code: str) -> None:
    app = create_app(settings(api_key=key))

    async def ask() -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url=f"http://{address}", headers=headers
        ) as http:
            return await http.post("/verify", json={"draft_tokens": []})

    assert asyncio.run(ask()).json()["error"]["code"] == code


PROMPT_IDS = [256, 1, 2]
PREFILL = {"session_id": "s", "prompt_ids": PROMPT_IDS, "self_continue": True}


def settled_length(live: LiveServer) -> int:
    """The number of tokens of the session once it no longer grows."""
    session, seen = live.service.sessions.get("s"), -1
    while seen != len(session.tokens):
        seen = len(session.tokens)
        live.service.engine.check_integrity()
        live.service.engine.check_integrity()
    return seen


def test_verify_requests_can_pause_and_resume_self_continuation(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), clock=lambda: 0.0)
    live.post("/prefill", PREFILL)
    assert settled_length(live) == 4 + LEAD - 1
    pausing = {"session_id": "s", "position": 20, "draft_tokens": [], "next_in_ms": 1e6, "self_continue": False}
    assert live.post("/verify", pausing)["judged"] == 0
    assert settled_length(live) == 3 + LEAD
    assert live.post("/verify", {**pausing, "position": 3 + LEAD})["total_tokens"] == 4 + LEAD
    assert settled_length(live) == 4 + LEAD
    late = {**pausing, "self_continue": True}  # sent before the pausing request, arrives after it
    assert live.post("/verify", late)["position"] == 20
    assert settled_length(live) == 4 + LEAD
    live.post("/verify", {**pausing, "position": 4 + LEAD, "self_continue": True})
    assert settled_length(live) == 4 + 2 * LEAD


def test_verify_needs_self_continue_of_the_prefill(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), clock=lambda: 0.0)
    live.post("/prefill", {**PREFILL, "self_continue": False})
    for asked in (True, False):
        body = {"session_id": "s", "position": 4, "draft_tokens": [], "self_continue": asked}
        response = live.http.post("/verify", json=body)
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["param"]) == (422, "self_continue_refused", "self_continue")


@pytest.mark.parametrize("missing", ["session_id", "position"])
def test_self_continuation_needs_session_id_and_position(serve: Serve, missing: str) -> None:
    live = serve(ScriptedBackend(SCRIPT), clock=lambda: 0.0)
    live.post("/prefill", PREFILL)
    body: dict[str, Any] = {"session_id": "s", "position": 4, "draft_tokens": []}
    del body[missing]
    response = live.http.post("/verify", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (422, "self_continue_refused", missing)
    in_header = live.http.post("/verify", json={"position": 4, "draft_tokens": []}, headers={"X-Session-Id": "s"})
    assert in_header.status_code == 200


@pytest.mark.parametrize("strategy", ["coupled", "deterministic", "greedy"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_drafting_client_gets_the_text_despite_self_continuation(
    serve: Serve, strategy: str, temperature: float
) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    sampling = Sampling(5, temperature if strategy == "coupled" else 0.0)
    expected = plain(SCRIPT, PROMPT_IDS, 60, sampling)
    body = {**PREFILL, "temperature": temperature, "seed": 5, "strategy": strategy, "max_tokens": 60}
    text: list[int] = live.post("/prefill", body)["tokens"]
    while len(text) < 60:
        drafts = [*expected[len(text) : len(text) + 3], 0]
        reply = live.post("/verify", {"session_id": "s", "position": 3 + len(text), "draft_tokens": drafts})
        accepted = 0 if strategy == "greedy" else common_prefix(reply["tokens"], drafts)
        assert reply["accepted_prefix_len"] == accepted
        text += reply["tokens"]
    assert text == expected
    live.service.engine.check_integrity()
