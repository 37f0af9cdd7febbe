"""Drafts that are trees, over HTTP: `draft_parents`, the accepted path, what is refused and why."""

from typing import Any

import pytest

from tests.verifier_server.conftest import SCRIPT, LiveServer
from tests.verifier_server.engine.bench import plain

PROMPT_IDS = [256, 1, 2]
TEXT = plain(SCRIPT, PROMPT_IDS, 40)
WRONG, OTHER = [each for each in range(256) if each not in TEXT][:2]
TREE = {"draft_tokens": [WRONG, TEXT[1], WRONG, TEXT[2], OTHER], "draft_parents": [1, 2, 1, 2, 3]}
PATH = [1, 3]


def opened(live: LiveServer, **options: Any) -> str:
    reply = live.post("/prefill", {"prompt_ids": PROMPT_IDS, **options})
    session_id: str = reply["session_id"]
    return session_id


def test_a_tree_is_judged_and_the_reply_says_which_path_was_accepted(server: LiveServer) -> None:
    assert server.http.get("/model").json()["trees"] is True
    body = {"session_id": opened(server), "position": 4, **TREE}
    reply = server.post("/verify", body)
    assert (reply["tokens"], reply["preds"]) == (TEXT[1:4], TEXT[1:4])
    assert (reply["accepted_prefix_len"], reply["accepted_path"], reply["judged"]) == (2, PATH, 5)
    assert reply["sources"] == "aabxxx"
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
    session = {"session_id": opened(server)}
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
    body = {"session_id": opened(server), "position": 4, "draft_tokens": [5, 6, 5], "draft_parents": parents}
    response = server.http.post("/verify", json=body)
    assert response.status_code == 422
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_request", param)
    assert error["message"].startswith(f"{param}: ") and words in error["message"]


def test_a_threshold_takes_no_trees(server: LiveServer) -> None:
    session = opened(server, strategy="threshold", threshold=0.2)
    response = server.http.post("/verify", json={"session_id": session, "position": 4, **TREE})
    assert response.status_code == 422 and "the strategy threshold takes no trees" in response.text
    chain = {"draft_tokens": [5, 6], "draft_parents": [1, 1]}
    assert server.post("/verify", {"session_id": session, "position": 4, **chain})["judged"] == 2
