"""Self-continuation over HTTP."""

from typing import Any

import pytest

from backends.scripted import ScriptedBackend
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.sampling.sampling import Sampling
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain
from verifier_server.engine.sequence_state import LEAD

PROMPT_IDS = [256, 1, 2]
TEXT = plain(SCRIPT, PROMPT_IDS, 200)
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
