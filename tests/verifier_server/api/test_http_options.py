"""Options of texts over HTTP: processors, log probabilities, grammars, and the cache of prefixes."""

import json
from pathlib import Path
from typing import Any

import pytest

from backends.scripted import ScriptedBackend
from specpair.speculation.sampling.distribution import token_logprobs
from tests.specpair.speculation import processed
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.support import bearer, events, keys_in, metric

MODEL = ScriptedBackend(SCRIPT)
PROMPT = [256, 1, 2]
COUNT = 12
SETTINGS: dict[str, Any] = {
    "min_p": 0.05,
    "presence_penalty": 0.4,
    "frequency_penalty": 0.3,
    "repetition_penalty": 1.2,
    "logit_bias": {"0": 0.5, "2": -1.0},
}
ASKED: dict[str, Any] = {"prompt_ids": PROMPT, "max_tokens": COUNT, "seed": 9, "temperature": 1.1, "top_p": 0.95}
ASKED |= SETTINGS
EXPECTED = processed.plain(MODEL.logits_after, PROMPT, COUNT, processed.SETTINGS["all"])


def logprobs(tokens: list[int], top: int) -> list[Any]:
    """The log probabilities of a text's tokens, as in replies."""
    rows = [MODEL.logits_after([*PROMPT, *tokens[:at]]) for at in range(len(tokens))]
    found = [token_logprobs(row, token, top).body() for row, token in zip(rows, tokens, strict=True)]
    return [each | {"top": [list(pair) for pair in each["top"]]} for each in found]


def test_a_session_has_the_processors_of_its_prefill(server: LiveServer) -> None:
    opened = server.post("/prefill", ASKED)
    assert {name: opened["sampling"].get(name) for name in SETTINGS} == SETTINGS
    tokens, position = list(opened["tokens"]), 4
    while len(tokens) < COUNT:
        draft = [*EXPECTED[len(tokens) : len(tokens) + 2], 7]
        reply = server.post(
            "/verify", {"session_id": opened["session_id"], "position": position, "draft_tokens": draft}
        )
        tokens += reply["tokens"]
        position = reply["total_tokens"]
    assert tokens == EXPECTED


@pytest.mark.parametrize("path", ["/prefill", "/generate"])
def test_a_bias_of_an_id_that_the_vocabulary_lacks_is_refused(server: LiveServer, path: str) -> None:
    response = server.http.post(path, json=ASKED | {"logit_bias": {"999": 1.0, "257": 1.0, "258": 1.0}})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (422, "token_out_of_range", "logit_bias.258")
    assert error["message"] == "logit_bias: token id 258 is outside of the vocabulary of 258 ids"


def test_whole_texts_and_their_events_have_logprobs(server: LiveServer) -> None:
    whole = server.post("/generate", ASKED | {"logprobs": 3})
    assert whole["token_ids"] == EXPECTED and whole["logprobs"] == logprobs(EXPECTED, 3)
    told = events(server, ASKED | {"logprobs": 3})
    parts = [data["logprobs"] for name, data in told if name == "tokens"]
    assert [each for part in parts for each in part] == told[-1][1]["logprobs"] == whole["logprobs"]
    assert "logprobs" not in server.post("/generate", ASKED)


PROMPT_GRAMMAR: dict[str, Any] = {"prompt_ids": [256, 1, 2], "max_tokens": 60, "seed": 9, "temperature": 1.0}
SCHEMA = {"type": "array", "items": {"enum": ["left", "right"]}, "minItems": 2, "maxItems": 3}
GRAMMARS: dict[str, Any] = {
    "json_schema": SCHEMA,
    "regex": "(ha){2,5}!",
    "choice": ["rouge", "noir"],
    "grammar": 'start: "x" start "y" | "z"',
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_text_keeps_to_its_grammar(server: LiveServer, name: str) -> None:
    reply = server.post("/generate", PROMPT_GRAMMAR | {name: GRAMMARS[name]})
    assert reply["finish_reason"] == "stop" and name not in reply["sampling"]  # it is known
    assert "f" in reply["sources"]
    if name == "json_schema":
        assert set(json.loads(reply["text"])) <= {"left", "right"}
    if name == "choice":
        assert reply["text"] in GRAMMARS["choice"]
    opened = server.post("/prefill", PROMPT_GRAMMAR | {name: GRAMMARS[name]})
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
        ({"json_schema": {"items": {"not": {"const": 1}}}}, "json_schema", "json_schema#/items/not: "),
        ({"json_schema": "{}"}, None, "json_schema"),
        ({"regex": "("}, "regex", "regex: "),
        ({"regex": "a" * 20_000}, None, "regex"),
        ({"choice": []}, "choice", "choice: is empty: give at least one text"),
        ({"choice": ["a"] * 2000}, None, "at most 1000"),
        ({"grammar": "start: b"}, "grammar", "grammar: "),
        ({"regex": "a", "choice": ["b"]}, None, "choice: give either regex or choice"),
    ],
)
def test_what_is_wrong_with_a_grammar_is_said(
    server: LiveServer, path: str, given: dict[str, Any], param: str | None, message: str
) -> None:
    response = server.http.post(path, json=PROMPT_GRAMMAR | given)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (422, "invalid_request")
    assert message in error["message"] and len(error["message"]) < 500
    if param is not None:
        assert error["param"] == param


PROMPT_PREFIX_CACHE = [256, *range(60)]


def text(live: LiveServer, path: str = "/generate", prompt: list[int] = PROMPT_PREFIX_CACHE, **given: Any) -> int:
    """How many tokens of a prompt were cached. The session is gone afterwards."""
    headers = given.pop("headers", None)
    body = {"prompt_ids": prompt, "max_tokens": 8, **given}
    if path == "/v1/completions":
        reply = live.post(path, {"prompt": prompt, "max_tokens": 8, **given}, headers=headers)
        assert (
            reply["usage"]["prompt_tokens"] == len(prompt) == reply["timings"]["prompt_n"] + reply["timings"]["cache_n"]
        )
        cached: int = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert reply["timings"]["cache_n"] == cached
        return cached
    reply = live.post(path, body, headers=headers)
    if path == "/prefill":
        live.http.delete(f"/sessions/{reply['session_id']}", headers=headers)
    return int(reply.get("cached_tokens", 0))


@pytest.mark.parametrize("path", ["/generate", "/prefill", "/v1/completions"])
def test_the_same_prompt_again_and_the_next_turn(serve: Serve, path: str) -> None:
    live = serve(ScriptedBackend(SCRIPT, slots=3))
    assert [text(live, path), text(live, path)] == [0, 60]
    assert text(live, path, [*PROMPT_PREFIX_CACHE, 5, 6, 7]) == 61
    assert metric(live, "prefix_cache_hits_total") == 60 + 61
    assert metric(live, "kv_kept_tokens") > 60


def test_keys_and_salts_share_nothing(serve: Serve, tmp_path: Path) -> None:
    live = serve(ScriptedBackend(SCRIPT, slots=8), keys_file=keys_in(tmp_path / "keys.toml", "one", "two"))
    one, other = bearer("one"), bearer("two")
    for path in ("/generate", "/prefill", "/v1/completions"):
        prompt = [*PROMPT_PREFIX_CACHE, 100, len(path)]
        assert text(live, path, prompt, headers=one, cache_salt=path) == 0
        assert text(live, path, prompt, headers=other, cache_salt=path) == 0
        assert text(live, path, prompt, headers=one, cache_salt=path + "x") == 0
        assert text(live, path, prompt, headers=one, cache_salt=path) == 62
