"""Concurrent clients, lost replies, and sessions deleted during a request."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from backends.scripted import ScriptedBackend
from tests.verifier_server.conftest import SCRIPT, Serve, settings
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import Gated, drafting_client
from verifier_server.app import create_app


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
