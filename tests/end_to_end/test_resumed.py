"""A verifier that does not know a session continues its text from `committed_ids` with the same tokens."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier, running
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import CONTEXT, EPSILON, Reference
from verifier_server.settings import Settings

pytestmark = pytest.mark.slow

LENGTH = 160
CUTS = (1, 40, 100, 159)


@pytest.fixture(scope="module")
def deterministic() -> Iterator[Verifier]:
    with running(Settings(slots=2, context=CONTEXT, deterministic=True)) as started:
        yield started


def body(prompt: list[int], number: int, **more: Any) -> dict[str, Any]:
    return {"prompt_ids": prompt, "max_tokens": LENGTH, "seed": number, "temperature": 0.8, **more}


def continued(http: httpx.Client, options: dict[str, Any], committed: list[int], by: str) -> list[int]:
    """The whole text, continued in a new session by /generate, or draft by draft by /verify."""
    request = {**options, "session_id": "continued", "committed_ids": committed}
    try:
        if by == "generate":
            return list(http.post("/generate", json=request).raise_for_status().json()["token_ids"])
        reply = http.post("/prefill", json=request).raise_for_status().json()
        text = committed + reply["tokens"]
        while reply["finish_reason"] is None:
            verify = {"session_id": "continued", "position": len(options["prompt_ids"]) + len(text)}
            reply = http.post("/verify", json={**verify, "draft_tokens": text[-4:]}).raise_for_status().json()
            text += reply["tokens"]
        return text
    finally:
        http.delete("/sessions/continued")


@pytest.mark.parametrize("by", ["generate", "verify"])
def test_resumed_text_is_identical_with_deterministic_logits(
    deterministic: Verifier, reference: Reference, by: str
) -> None:
    with httpx.Client(base_url=deterministic.url, timeout=60, trust_env=False) as http:
        for number, prompt in enumerate(PROMPTS[:2]):
            options = body(reference.encode(prompt), number)
            whole = http.post("/generate", json=options).raise_for_status().json()["token_ids"]
            for cut in CUTS:
                assert continued(http, options, whole[:cut], by) == whole, f"prompt {number}, cut at {cut}"


def test_resumed_text_differs_only_at_near_ties(
    verifier: Verifier, reference: Reference, count_flips: Callable[[int, list[float]], None]
) -> None:
    tokens, flips = 0, []
    with httpx.Client(base_url=verifier.url, timeout=60, trust_env=False) as http:
        for number, prompt in enumerate(PROMPTS[:2]):
            ids = reference.encode(prompt)
            whole = http.post("/generate", json=body(ids, number)).raise_for_status().json()["token_ids"]
            for cut in CUTS:
                text = continued(http, body(ids, number), whole[:cut], "generate")
                assert text[:cut] == whole[:cut]
                flips += reference.flips(ids, text, Sampling(number, 0.8))
                tokens += len(text)
    count_flips(tokens, flips)
    assert max(flips, default=0.0) < EPSILON
