"""`token_details`: what replies tell of each token, whole and in a stream, at both ends."""

import json
from typing import Any

import httpx
import pytest

from specpair.speculation.acceptance.token_details import TokenSource

Json = dict[str, Any]
SOURCES = {source.value for source in TokenSource}
CHAT = {"messages": [{"role": "user", "content": "why?"}], "max_tokens": 24, "seed": 3}
TEXT = {"prompt": "def main(x):", "max_tokens": 24, "seed": 3, "temperature": 0.8}


def _whole(url: str, path: str, body: Json) -> Json:
    reply = httpx.post(f"{url}/v1/{path}", json=body, trust_env=False, timeout=60)
    assert reply.status_code == 200, reply.text
    choice: Json = reply.json()["choices"][0]
    return choice


def _streamed(url: str, path: str, body: Json) -> list[Json]:
    reply = httpx.post(f"{url}/v1/{path}", json=body | {"stream": True}, trust_env=False, timeout=60)
    lines = [line[6:] for line in reply.text.splitlines() if line.startswith("data: {")]
    return [choice for line in lines for choice in json.loads(line)["choices"]]


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
    chunks = _streamed(url, path, body | {"token_details": "sources"})
    again = [token for chunk in chunks for token in chunk["token_details"]]
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


def test_another_value_is_refused(url: str) -> None:
    reply = httpx.post(f"{url}/v1/completions", json=TEXT | {"token_details": "all"}, trust_env=False, timeout=60)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "token_details")
