"""Texts that tests of vLLM have written, and a client that drafts for them."""

import random
import re
from typing import Any

import httpx

from specpair.speculation.sampling.sampling import Sampling
from tests.verifier_server.conftest import LiveServer

PROMPTS = ["def read_lines(path):\n", "import os\n\n\nclass Node:\n", "for name in sorted(", "# The number of"]
LENGTH = 40
DRAWN: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"temperature": 0.8},
    "filtered": {"temperature": 1.0, "top_k": 40, "top_p": 0.9},
    "processed": {"temperature": 0.7, "repetition_penalty": 1.3, "min_p": 0.02, "logit_bias": {"300": 2.0}},
    "grammar": {"temperature": 0.9, "regex": "([a-z]{2,7}[ ,]){3,6}end"},
}


def sampling_of(fields: dict[str, Any], seed: int) -> Sampling:
    given = dict(fields)
    if "logit_bias" in given:
        given["logit_bias"] = {int(token): bias for token, bias in given["logit_bias"].items()}
    return Sampling(seed=seed, **given)


def drafted(http: httpx.Client, ids: list[int], guess: list[int], body: dict[str, Any], seed: int) -> list[int]:
    """A text by a client whose drafts are right, wrong, too long, late or missing, as chance has it.

    `guess`: what it drafts from.
    """
    chance = random.Random(seed)
    reply = http.post("/prefill", json={"prompt_ids": ids, "max_tokens": LENGTH, "seed": seed, **body})
    assert reply.status_code == 200, reply.text
    session, text = reply.json()["session_id"], list(reply.json()["tokens"])
    while reply.json()["finish_reason"] is None:
        known = chance.randint(max(1, len(text) - 3), len(text))
        draft = guess[known : len(text) + chance.randint(0, 12)]
        if draft and chance.random() < 0.4:
            draft[chance.randrange(len(draft))] = chance.randrange(3, 4000)
        reply = http.post("/verify", json={"session_id": session, "position": len(ids) + known, "draft_tokens": draft})
        assert reply.status_code == 200, reply.text
        text[known:] = reply.json()["tokens"]
    return text


def generated(live: LiveServer, ids: list[int], body: dict[str, Any], seed: int) -> list[int]:
    reply = live.post("/generate", {"prompt_ids": ids, "max_tokens": LENGTH, "seed": seed, **body})
    text: list[int] = reply["token_ids"]
    return text


def passes(live: LiveServer) -> int:
    """Steps so far."""
    [count] = re.findall(r"^specpair_pass_sessions_count\S* (\d+)", live.http.get("/metrics").text, re.M)
    return int(count)
