"""OpenAI's API over real models: `drafter serve` answers as the verifier itself does."""

import json
from typing import Any

import httpx
import pytest

from tests.real_models.conftest import SEED, TOKENS

pytestmark = pytest.mark.engine("real")

CHAT = {
    "messages": [
        {"role": "system", "content": "You answer in one sentence."},
        {"role": "user", "content": "What does the Python function zip do?"},
    ],
    "max_tokens": TOKENS,
    "seed": SEED,
}


def asked(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The first choice of a reply."""
    reply: dict[str, Any] = client.post(path, json=body).raise_for_status().json()
    assert reply["model"].startswith("qwen2.5-coder-1.5b")
    choice: dict[str, Any] = reply["choices"][0]
    return choice


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_chats_are_the_same_at_both_ends(ends: tuple[httpx.Client, httpx.Client], temperature: float) -> None:
    own, paired = (asked(end, "/v1/chat/completions", {**CHAT, "temperature": temperature}) for end in ends)
    assert paired == own
    assert "zip" in own["message"]["content"]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_streams_are_the_whole_reply_in_parts(ends: tuple[httpx.Client, httpx.Client], temperature: float) -> None:
    body = {**CHAT, "temperature": temperature}
    whole = asked(ends[0], "/v1/chat/completions", body)
    for end in ends:
        with end.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
            lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
        assert lines.pop() == "[DONE]"
        choices = [choice for line in lines for choice in json.loads(line)["choices"]]
        assert "".join(choice["delta"].get("content") or "" for choice in choices) == whole["message"]["content"]
        assert choices[-1]["finish_reason"] == whole["finish_reason"]
        assert len(choices) > 4, "it came in parts"


def test_the_next_turn_is_warm_and_its_text_that_of_a_cold_one(ends: tuple[httpx.Client, httpx.Client]) -> None:
    for number, end in enumerate(ends):
        first = {**CHAT, "temperature": 0, "cache_salt": f"warm {number}"}
        answer = asked(end, "/v1/chat/completions", first)["message"]
        messages = [*CHAT["messages"], answer, {"role": "user", "content": "And enumerate?"}]  # type: ignore[misc]
        replies = [
            end.post("/v1/chat/completions", json={**first, "messages": messages, "cache_salt": salt})
            for salt in (first["cache_salt"], f"cold {number}")
        ]
        warm, cold = (reply.raise_for_status().json() for reply in replies)
        assert warm["choices"] == cold["choices"]
        cached = [reply["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in (warm, cold)]
        assert cached[0] > warm["usage"]["prompt_tokens"] / 2 and cached[1] == 0
