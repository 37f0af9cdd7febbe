"""Strategies over HTTP: required and refused fields, and the decisions that `explain` returns."""

from typing import Any

import pytest

from tests.verifier_server.conftest import LiveServer

PROMPT_IDS = [256, 1, 2]
PREFILL: dict[str, Any] = {"prompt_ids": PROMPT_IDS, "max_tokens": 40, "seed": 5, "temperature": 0.8}
KEYS = {"token", "p", "draft", "draft_p", "q", "drawn", "verdict"}


@pytest.fixture
def opened(server: LiveServer) -> Any:
    """Opens a session: `opened("probabilistic", …)` returns its id. Deletes others, so that all drafts are judged."""
    for session in server.service.sessions.all():
        server.http.delete(f"/sessions/{session.id}")

    def opening(strategy: str, **more: Any) -> str:
        threshold = {"threshold": 0.3} if strategy == "threshold" else {}
        reply = server.post("/prefill", {**PREFILL, "strategy": strategy, **threshold, **more})
        assert reply["sampling"]["strategy"] == strategy
        assert reply["sampling"].get("threshold") == threshold.get("threshold")
        return str(reply["session_id"])

    return opening


def refused(live: LiveServer, path: str, body: Any) -> tuple[int, str, str, str | None]:
    response = live.http.post(path, json=body)
    error = response.json()["error"]
    return response.status_code, error["code"], error["message"], error.get("param")


def test_strategy_probabilistic_needs_draft_probs(server: LiveServer, opened: Any) -> None:
    request = {"session_id": opened("probabilistic"), "position": 4, "draft_tokens": [7, 8]}
    status, code, message, param = refused(server, "/verify", request)
    assert (status, code, param) == (422, "invalid_request", "draft_probs")
    assert message.startswith("draft_probs: Field required with the strategy probabilistic")
    huge = {"7": 1e308, "8": 1e308, "9": 1e308}  # the sum overflows
    wrong = (([{"7": 1.0}], "draft_probs"), ([{"7": 1.0}, {"9": 1.0}], "draft_probs.1"), ([huge] * 2, "draft_probs.0"))
    for bad, where in wrong:
        assert refused(server, "/verify", {**request, "draft_probs": bad})[1::2] == ("invalid_request", where)
    reply = server.post("/verify", {**request, "draft_probs": [{"7": 0.5, "9": 0.5}, {"8": 1.0}]})
    assert 1 <= len(reply["tokens"]) <= 3
    empty = {**request, "position": reply["total_tokens"], "draft_tokens": []}
    assert len(server.post("/verify", empty)["tokens"]) == 1
    assert len(server.post("/verify", {**empty, "position": reply["total_tokens"] + 1, "draft_probs": []})["tokens"])


@pytest.mark.parametrize("strategy", ["coupled", "deterministic", "greedy", "threshold"])
def test_other_strategies_refuse_draft_probs(server: LiveServer, opened: Any, strategy: str) -> None:
    request = {"session_id": opened(strategy), "position": 4, "draft_tokens": [7], "draft_probs": [{"7": 1.0}]}
    status, code, message, param = refused(server, "/verify", request)
    assert (status, code, param) == (422, "invalid_request", "draft_probs")
    assert f"the strategy {strategy} makes no use of them" in message


@pytest.mark.parametrize("path", ["/prefill", "/generate"])
def test_threshold_goes_with_the_strategy_threshold_only(server: LiveServer, path: str) -> None:
    for body in ({"strategy": "threshold"}, {"threshold": 0.5}, {"strategy": "greedy", "threshold": 0.5}):
        status, code, message, _ = refused(server, path, {"prompt": "x", **body})
        assert (status, code) == (422, "invalid_request")
        assert "threshold" in message
    assert refused(server, path, {"prompt": "x", "strategy": "threshold", "threshold": 1.0})[3] == "threshold"


@pytest.mark.parametrize("strategy", ["coupled", "deterministic", "greedy", "probabilistic", "threshold"])
def test_explain_returns_a_decision_for_every_token(server: LiveServer, opened: Any, strategy: str) -> None:
    session_id = opened(strategy, explain=True)
    prefill = {**PREFILL, "session_id": session_id, "strategy": strategy, "explain": True}
    prefill |= {"threshold": 0.3} if strategy == "threshold" else {}
    position, decisions = 4, []
    for draft in range(60, 66):
        request = {"session_id": session_id, "position": position, "draft_tokens": [draft, 9]}
        if strategy == "probabilistic":
            request["draft_probs"] = [{str(draft): 0.25, "200": 0.75}, {"9": 1.0}]
        reply, again = server.post("/verify", request), server.post("/verify", request)
        assert [each["token"] for each in reply["decisions"]] == reply["tokens"]
        assert again["decisions"] == reply["decisions"]
        first = reply["decisions"][0]
        assert first.keys() == KEYS
        assert (first["draft"], first["verdict"]) in {(draft, "accepted"), (draft, "rejected")}
        assert first["q"] == (0.25 if strategy == "probabilistic" else None)
        decisions += reply["decisions"]
        position = reply["total_tokens"]
    with server.http.stream("GET", f"/sessions/{session_id}/stream?from=4") as pushed:
        lines = pushed.iter_lines()
        line = next(line for line in lines if line.startswith("data: "))
    assert '"decisions":[{"token":' in line
    assert all(0.0 <= each["p"] <= 1.0 for each in decisions)
