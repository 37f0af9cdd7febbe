"""`POST /verify/batch`: items have results of their own, share passes, and are dropped when the client disconnects."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from backends.scripted import ScriptedBackend
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain

PROMPTS = {name: [256, 5 + number] for number, name in enumerate("abcd")}
TEXTS = {name: plain(SCRIPT, ids, 12) for name, ids in PROMPTS.items()}


def opened(live: LiveServer) -> None:
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
    opened(live)
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
    opened(live)
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


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "items"),
        ({"items": []}, "items"),
        ({"items": [right("a")] * 257}, "items"),
        ({"items": {}}, "items"),
        ({"items": [right("a")], "more": 1}, "more"),
        ([], None),
    ],
    ids=["nothing", "empty", "too many", "no list", "more", "no object"],
)
def test_malformed_batch_is_refused(server: LiveServer, body: Any, param: str | None) -> None:
    response = server.http.post("/verify/batch", json=body)
    assert response.status_code == 422
    assert response.json()["error"]["code"] == "invalid_request"
    assert response.json()["error"].get("param") == param
