"""Grammars over HTTP: texts keep to them, replies report them, and what is wrong with one is a typed error."""

import json
from typing import Any

import pytest

from tests.verifier_server.conftest import LiveServer

PROMPT: dict[str, Any] = {"prompt_ids": [256, 1, 2], "max_tokens": 60, "seed": 9, "temperature": 1.0}
SCHEMA = {"type": "array", "items": {"enum": ["left", "right"]}, "minItems": 2, "maxItems": 3}
GRAMMARS: dict[str, Any] = {
    "json_schema": SCHEMA,
    "regex": "(ha){2,5}!",
    "choice": ["rouge", "noir"],
    "grammar": 'start: "x" start "y" | "z"',
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_text_keeps_to_its_grammar(server: LiveServer, name: str) -> None:
    reply = server.post("/generate", PROMPT | {name: GRAMMARS[name]})
    assert reply["finish_reason"] == "stop" and name not in reply["sampling"]  # it is known
    assert "f" in reply["sources"]
    if name == "json_schema":
        assert set(json.loads(reply["text"])) <= {"left", "right"}
    if name == "choice":
        assert reply["text"] in GRAMMARS["choice"]
    opened = server.post("/prefill", PROMPT | {name: GRAMMARS[name]})
    tokens, position = [*opened["tokens"]], opened["total_tokens"]
    finished = opened["finish_reason"]
    while finished is None:
        draft = {"session_id": opened["session_id"], "position": position, "draft_tokens": [104, 97]}
        verified = server.post("/verify", draft)
        tokens += verified["tokens"]
        position, finished = verified["total_tokens"], verified["finish_reason"]
    assert tokens == reply["token_ids"]


@pytest.mark.parametrize("path", ["/prefill", "/generate"])
@pytest.mark.parametrize(
    ("given", "param", "message"),
    [
        ({"json_schema": {"items": {"not": {}}}}, "json_schema", "json_schema.items.not: "),
        ({"json_schema": "{}"}, None, "json_schema"),
        ({"regex": "("}, "regex", "regex: "),
        ({"regex": "a" * 20_000}, None, "regex"),
        ({"choice": []}, "choice", "choice: is empty: give at least one text"),
        ({"choice": [1]}, None, "choice"),
        ({"choice": [""]}, None, "choice"),
        ({"choice": ["a"] * 2000}, None, "at most 1000"),
        ({"grammar": "start: b"}, "grammar", "grammar: "),
        ({"regex": "a", "choice": ["b"]}, None, "choice: give either regex or choice"),
    ],
)
def test_what_is_wrong_with_a_grammar_is_said(
    server: LiveServer, path: str, given: dict[str, Any], param: str | None, message: str
) -> None:
    response = server.http.post(path, json=PROMPT | given)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (422, "invalid_request")
    assert message in error["message"] and len(error["message"]) < 500
    if param is not None:
        assert error["param"] == param
