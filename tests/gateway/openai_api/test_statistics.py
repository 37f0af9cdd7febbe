"""What replies tell of tokens and drafts, whole and in a stream, at both ends."""

import json
from typing import Any

import httpx
import pytest

from specpair.speculation.acceptance.token_sources import TokenSource

Json = dict[str, Any]
SOURCES = {source.value for source in TokenSource}
CHAT = {"messages": [{"role": "user", "content": "why?"}], "max_tokens": 24, "seed": 3}
TEXT = {"prompt": "def main(x):", "max_tokens": 24, "seed": 3, "temperature": 0.8}


def _replies(url: str, path: str, body: Json) -> list[Json]:
    """The reply, or the chunks of a stream."""
    reply = httpx.post(f"{url}/v1/{path}", json=body, trust_env=False, timeout=60)
    assert reply.status_code == 200, reply.text
    if not body.get("stream"):
        return [reply.json()]
    lines = [line.removeprefix("data: ") for line in reply.text.split("\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def _whole(url: str, path: str, body: Json) -> Json:
    (reply,) = _replies(url, path, body)
    choice: Json = reply["choices"][0]
    return choice


@pytest.mark.parametrize(("path", "body"), [("completions", TEXT), ("chat/completions", CHAT)], ids=["text", "chat"])
def test_the_tokens_make_up_the_text_and_have_sources(url: str, path: str, body: Json) -> None:
    choice = _whole(url, path, body | {"token_details": "sources"})
    text = choice["text"] if path == "completions" else choice["message"]["content"]
    told = choice["token_details"]
    assert "".join(token["text"] for token in told) == text
    assert {token["source"] for token in told} <= SOURCES
    assert all(token.keys() == {"id", "text", "source", "draft_source"} for token in told)
    drafted = {token["draft_source"] for token in told if token["source"] not in ("accepted", "recovered")}
    assert drafted <= {None}, "no draft token was judged there"
    chunks = _replies(url, path, body | {"token_details": "sources", "stream": True})
    again = [token for chunk in chunks for choice in chunk["choices"] for token in choice["token_details"]]
    assert [token["id"] for token in again] == [token["id"] for token in told]
    assert "".join(token["text"] for token in again) == text


def test_decisions_have_the_probabilities_and_the_draft_token(url: str) -> None:
    told = _whole(url, "completions", TEXT | {"token_details": "decisions"})["token_details"]
    decisions = [token["decision"] for token in told if token["decision"] is not None]
    assert decisions, "none is known"
    for token in told:
        why = token["decision"]
        if why is not None:
            assert 0.0 <= why["p"] <= 1.0
            assert (why["draft"] is None) == (why["verdict"] == "own")
            if why["verdict"] == "accepted":
                assert why["draft"] == token["text"] and why["draft_p"] == why["p"]


def test_nothing_is_told_unasked_and_a_stop_string_cuts_the_last_token(url: str) -> None:
    assert "token_details" not in _whole(url, "completions", TEXT)
    text = _whole(url, "completions", TEXT)["text"]
    stop = text[10:12]
    cut = _whole(url, "completions", TEXT | {"stop": stop, "token_details": "sources"})
    assert "".join(token["text"] for token in cut["token_details"]) == cut["text"] == text.partition(stop)[0]


LENGTH = 20  # tokens of a text
PROMPT, MESSAGES = {"prompt": "def main(x):"}, {"messages": [{"role": "user", "content": "Hi"}]}
PARTS = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
EACH = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
LAST = {"stream": True, "stream_options": {"include_usage": True}}
MODEL = {"model": "scripted-2"}
GUIDELLM = [
    ("completions", MODEL | EACH | {"max_tokens": LENGTH, "stop": None, "ignore_eos": True} | PROMPT),
    ("chat/completions", MODEL | EACH | {"max_completion_tokens": LENGTH, "stop": None, "ignore_eos": True} | PARTS),
    ("completions", MODEL | {"max_tokens": LENGTH, "stop": None, "ignore_eos": True} | PROMPT),
]
AIPERF = [
    ("completions", PROMPT | MODEL | LAST | {"max_tokens": LENGTH}),
    ("completions", PROMPT | MODEL | LAST | {"max_tokens": LENGTH, "ignore_eos": True, "min_tokens": LENGTH}),
    ("chat/completions", MESSAGES | MODEL | EACH | {"max_completion_tokens": LENGTH, "ignore_eos": True}),
    ("chat/completions", MESSAGES | MODEL | {"stream": False, "max_completion_tokens": LENGTH}),
]


def _acceptance(replies: list[Json]) -> Json:
    """As aiperf reads it: at the root of exactly one reply, with counts that agree with each other."""
    (found,) = [reply["metrics"]["speculative_decoding"] for reply in replies if "metrics" in reply]
    histogram = found["acceptance_histogram"]
    assert all(type(count) is int and count >= 0 for count in histogram)
    assert len(histogram) == found["num_spec_tokens"] + 1 and sum(histogram) == found["num_spec_steps"]
    accepted = sum(at * count for at, count in enumerate(histogram))
    assert accepted == found["num_accepted_draft_tokens"] <= found["num_draft_tokens"]
    assert found["mean_acceptance_length"] == 1 + accepted / max(1, found["num_spec_steps"])
    assert found["draft_acceptance_rate"] == accepted / max(1, found["num_draft_tokens"])
    return dict(found)


@pytest.mark.parametrize(("path", "body"), [*GUIDELLM, *AIPERF])
def test_a_text_has_the_length_that_was_asked_for(url: str, path: str, body: Json) -> None:
    replies = _replies(url, path, body)
    (reason,) = {choice["finish_reason"] for reply in replies for choice in reply["choices"]} - {None}
    assert reason == "length" and replies[-1]["usage"]["completion_tokens"] == LENGTH
    _acceptance(replies)
    if body.get("stream_options", {}).get("continuous_usage_stats"):
        assert all(reply["usage"] for reply in replies if any(map(_grew, reply["choices"])))


def _grew(choice: Json) -> bool:
    return bool(choice.get("text") or choice.get("delta", {}).get("content"))


def test_the_acceptance_is_that_of_the_other_statistics(url: str) -> None:
    (reply,) = _replies(url, "completions", PROMPT | {"max_tokens": 60, "seed": 5})
    found, counts = _acceptance([reply]), reply["spec_decode"]
    names = {
        "num_spec_steps": "num_drafts",
        "num_draft_tokens": "num_draft_tokens",
        "num_accepted_draft_tokens": "num_accepted_tokens",
    }
    assert {name: found[name] for name in names} == {name: counts[other] for name, other in names.items()}


def test_without_a_length_a_chat_that_the_model_may_not_end_fills_the_context(url: str) -> None:
    (reply,) = _replies(url, "chat/completions", MESSAGES | {"ignore_eos": True, "logit_bias": {"257": 100}})
    assert reply["choices"][0]["finish_reason"] == "length" and reply["usage"]["total_tokens"] == 512
    (reply,) = _replies(url, "completions", PROMPT | {"ignore_eos": True, "logit_bias": {"257": 100}})
    assert reply["choices"][0]["finish_reason"] == "length" and reply["usage"]["completion_tokens"] == 16
