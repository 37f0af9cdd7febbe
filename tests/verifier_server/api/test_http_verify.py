"""Verify requests over HTTP: strategies, trees, batches."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from backends.scripted import ScriptedBackend
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain

PROMPT_IDS = [256, 1, 2]
PREFILL: dict[str, Any] = {"prompt_ids": PROMPT_IDS, "max_tokens": 40, "seed": 5, "temperature": 0.8}


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


TEXT = plain(SCRIPT, PROMPT_IDS, 40)
WRONG, OTHER = [each for each in range(256) if each not in TEXT][:2]
TREE = {"draft_tokens": [WRONG, TEXT[1], WRONG, TEXT[2], OTHER], "draft_parents": [1, 2, 1, 2, 3]}
PATH = [1, 3]


def opened_trees(live: LiveServer, **options: Any) -> str:
    reply = live.post("/prefill", {"prompt_ids": PROMPT_IDS, **options})
    session_id: str = reply["session_id"]
    return session_id


def test_a_tree_is_judged_and_the_reply_says_which_path_was_accepted(server: LiveServer) -> None:
    assert server.http.get("/model").json()["trees"] is True
    body = {"session_id": opened_trees(server, explain=True, logprobs=1), "position": 4, **TREE}
    reply = server.post("/verify", body)
    assert (reply["tokens"], reply["preds"]) == (TEXT[1:4], TEXT[1:4])
    assert (reply["accepted_prefix_len"], reply["accepted_path"], reply["judged"]) == (2, PATH, 5)
    assert reply["sources"] == "aabxxx"
    assert [each["token"] for each in reply["logprobs"]] == TEXT[1:4]
    verdicts = [(each["token"], each["draft"], each["verdict"]) for each in reply["decisions"]]
    assert verdicts == [(TEXT[1], TEXT[1], "accepted"), (TEXT[2], TEXT[2], "accepted"), (TEXT[3], None, "own")]
    again = server.post("/verify", body)
    assert (again["tokens"], again["accepted_path"], again["judged"]) == (TEXT[1:4], PATH, 0)
    longer = {
        "draft_tokens": [*TREE["draft_tokens"], TEXT[3], TEXT[4], WRONG],
        "draft_parents": [1, 2, 1, 2, 3, 2, 1, 2],
    }
    more = server.post("/verify", {**body, **longer})
    assert (more["tokens"], more["accepted_path"], more["judged"]) == (TEXT[1:6], [1, 3, 5, 6], 2), "what is left of it"
    stale = server.post("/verify", {**body, "draft_tokens": [WRONG, 3], "draft_parents": [1, 2]})
    assert (stale["tokens"], stale["accepted_path"], stale["judged"]) == (TEXT[1:6], [], 0)


def test_without_a_position_the_cursor_goes_along_the_path(server: LiveServer) -> None:
    session = {"session_id": opened_trees(server)}
    server.post("/verify", {**session, "draft_tokens": []})
    reply = server.post("/verify", {**session, "draft_tokens": [WRONG, TEXT[1], TEXT[2]], "draft_parents": [1, 2, 1]})
    assert (reply["position"], reply["accepted_path"]) == (4, [1, 2])
    assert server.post("/verify", {**session, "draft_tokens": []})["position"] == 6


@pytest.mark.parametrize(
    ("parents", "param", "words"),
    [
        ([1, 1], "draft_parents", "there are 2 of them for 3 draft_tokens: send one for each"),
        ([0, 1, 1], "draft_parents.0", "0 is not 1 to 1: 0 draft tokens stand before this one"),
        ([1, 1, 4], "draft_parents.2", "4 is not 1 to 3: 2 draft tokens stand before this one, and 3 means that it"),
        ([1, -1, 1], "draft_parents.1", "-1 is not 1 to 2"),
        ([1, 2, 3], "draft_tokens.2", "token 5 follows the same token as draft_tokens.0, which is equal: send it once"),
        ([1, 1.5, 1], "draft_parents.1", "Input should be a valid integer"),
        ("1", "draft_parents", "Input should be a valid array"),
    ],
)
def test_wrong_parents_are_refused_by_name(server: LiveServer, parents: Any, param: str, words: str) -> None:
    body = {"session_id": opened_trees(server), "position": 4, "draft_tokens": [5, 6, 5], "draft_parents": parents}
    response = server.http.post("/verify", json=body)
    assert response.status_code == 422
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_request", param)
    assert error["message"].startswith(f"{param}: ") and words in error["message"]


def test_a_threshold_takes_no_trees(server: LiveServer) -> None:
    session = opened_trees(server, strategy="threshold", threshold=0.2)
    response = server.http.post("/verify", json={"session_id": session, "position": 4, **TREE})
    assert response.status_code == 422 and "the strategy threshold takes no trees" in response.text
    chain = {"draft_tokens": [5, 6], "draft_parents": [1, 1]}
    assert server.post("/verify", {"session_id": session, "position": 4, **chain})["judged"] == 2


PROMPTS = {name: [256, 5 + number] for number, name in enumerate("abcd")}
TEXTS = {name: plain(SCRIPT, ids, 12) for name, ids in PROMPTS.items()}


def opened_batch(live: LiveServer) -> None:
    for name, ids in PROMPTS.items():
        live.post("/prefill", {"session_id": name, "prompt_ids": ids})


def right(name: str, count: int = 2) -> dict[str, Any]:
    return {"session_id": name, "position": 3, "draft_tokens": TEXTS[name][1 : 1 + count]}


@contextmanager
def eager_threads() -> Iterator[None]:
    """Python switches to another thread that can run after hardly any time."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


@pytest.mark.parametrize("path", ["/verify/batch", "/verify/batch/"])
def test_batch_is_answered_in_order_by_one_pass(serve: Serve, path: str) -> None:
    backend = ScriptedBackend(SCRIPT)
    live = serve(backend)
    opened_batch(live)
    passes = backend.passes
    with eager_threads():  # the engine's thread may begin a pass as soon as there is anything to judge
        results = live.post(path, {"items": [right(name, count) for count, name in enumerate("dbca")]})["results"]
    for count, (name, result) in enumerate(zip("dbca", results, strict=True)):
        assert result["tokens"] == result["preds"] == TEXTS[name][1 : 2 + count]
        assert (result["position"], result["accepted_prefix_len"], result["judged"]) == (3, count, count)
        assert (result["total_tokens"], result["finish_reason"]) == (4 + count, None)
        assert result["timing"]["sessions"] == 4
    assert backend.passes == passes + 1
    again = live.post(path, {"items": [right(name, count) for count, name in enumerate("dbca")]})["results"]
    assert [each["tokens"] for each in again] == [each["tokens"] for each in results]
    assert backend.passes == passes + 1


def test_item_with_an_error_does_not_affect_the_others(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    opened_batch(live)
    bad: list[tuple[Any, str, str]] = [
        ({"session_id": "missing", "draft_tokens": []}, "unknown_session", "no session missing"),
        ({"session_id": "b", "draft_tokens": [1.5]}, "invalid_request", "draft_tokens.0: Input should be"),
        ({"session_id": "b", "draft_tokens": [258]}, "token_out_of_range", "draft_tokens.0: token id 258"),
        ({"session_id": "b", "position": 99, "draft_tokens": []}, "position_beyond_committed", "position 99"),
        ({"session_id": "b", "draft_tokens": [], "drafts": 1}, "invalid_request", "drafts: Extra inputs"),
        ({"session_id": "b", "draft_tokens": [1] * 65, "position": 3}, "too_many_drafts", "65 new draft tokens"),
        ({"session_id": "b", "draft_tokens": [1], "draft_probs": [{"1": 1}]}, "invalid_request", "draft_probs: "),
        ({"draft_tokens": []}, "invalid_request", "session_id: Field required"),
        ([], "invalid_request", "Input should be"),
        (None, "invalid_request", "Input should be"),
    ]
    items = [right("a"), *(item for item, _, _ in bad), right("c")]
    results = live.post("/verify/batch", {"items": items})["results"]
    assert results[0]["tokens"] == TEXTS["a"][1:4]
    assert results[-1]["tokens"] == TEXTS["c"][1:4]
    for (_, code, words), result in zip(bad, results[1:-1], strict=True):
        assert result.keys() == {"error"}
        assert result["error"]["code"] == code
        assert result["error"]["message"].startswith(words)
    assert results[4]["error"]["total_tokens"] == 3, "details are included"
    assert live.post("/verify", right("b"))["tokens"] == TEXTS["b"][1:4], "its session is unchanged"
    live.service.engine.check_integrity()
