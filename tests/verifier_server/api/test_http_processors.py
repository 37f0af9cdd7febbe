"""Logit processors and log probabilities over HTTP: settings, errors, and what replies and events contain."""

import json
from typing import Any

import pytest

from backends.scripted import ScriptedBackend
from specpair.speculation.sampling.distribution import token_logprobs
from specpair.speculation.sampling.processors import MOST_BIASES
from tests.specpair.speculation import processed
from tests.verifier_server.conftest import SCRIPT, LiveServer
from tests.verifier_server.support import events

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


def streamed(server: LiveServer, session_id: str) -> list[Any]:
    """The data of the events `tokens` of a session's stream, to its end."""
    text = server.http.get(f"/sessions/{session_id}/stream").text
    lines = [block.split("\n") for block in text.split("\n\n") if block.startswith("event: tokens\n")]
    return [json.loads(data.removeprefix("data: ")) for _, data in lines]


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


def test_settings_that_are_off_are_not_reported(server: LiveServer) -> None:
    plain = {"prompt_ids": PROMPT, "max_tokens": 1}
    reported = [
        server.post("/generate", plain | more)["sampling"].keys() & SETTINGS.keys()
        for more in ({}, {"min_p": 0, "logit_bias": {}}, {"presence_penalty": 0.5})
    ]
    assert reported == [set(), set(), {"presence_penalty"}]


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


def test_prefill_verify_and_stream_have_logprobs(server: LiveServer) -> None:
    opened = server.post("/prefill", ASKED | {"logprobs": 2})
    reply = server.post(
        "/verify", {"session_id": opened["session_id"], "position": 3, "draft_tokens": [*EXPECTED[:3], 7]}
    )
    tokens = reply["tokens"]
    assert tokens == EXPECTED[: len(tokens)] and len(tokens) >= 4
    assert opened["logprobs"] == logprobs(EXPECTED[:1], 2) and reply["logprobs"] == logprobs(tokens, 2)
    while reply["finish_reason"] is None:
        request = {"session_id": opened["session_id"], "position": reply["total_tokens"], "draft_tokens": []}
        reply = server.post("/verify", request)
    told = streamed(server, opened["session_id"])
    assert [each for data in told for each in data["logprobs"]] == logprobs(EXPECTED, 2)


def test_a_request_for_other_logprobs_opens_the_session_anew(server: LiveServer) -> None:
    opened = server.post("/prefill", ASKED | {"session_id": "anew"})
    assert "logprobs" not in opened
    again = ASKED | {"session_id": "anew", "committed_ids": EXPECTED[:1], "logprobs": 1}
    reply = server.post("/prefill", again)
    assert reply["logprobs"] == logprobs(EXPECTED[:2], 1)[1:]


@pytest.mark.parametrize("path", ["/prefill", "/generate", "/v1/completions"])
def test_more_biases_than_are_taken_are_refused_in_a_few_words(server: LiveServer, path: str) -> None:
    for extra in (1, 20_000):
        biases = {str(token): 1 for token in range(MOST_BIASES + extra)}
        reply = server.http.post(path, json={"prompt": "a", "logit_bias": biases})
        assert reply.status_code in (400, 413, 422) and len(reply.content) < 1000
