"""Trees of drafts on llama.cpp: the shipped target writes the text that it writes alone, whichever path was taken."""

import random
from collections.abc import Callable

import httpx
import pytest

from drafter_client.http.client import VerifierClient
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier, options_of
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import EPSILON, Reference
from tests.verifier_server.engine.trees import random_tree

pytestmark = pytest.mark.slow

MAX_TOKENS = 60


@pytest.mark.parametrize("number", range(8))
def test_random_trees_do_not_change_the_text(
    client: VerifierClient,
    verifier: Verifier,
    reference: Reference,
    count_flips: Callable[[int, list[float]], None],
    number: int,
) -> None:
    assert client.model().trees
    sampling = Sampling(seed=number, temperature=(0.0, 0.8)[number % 2])
    prompt, written = reference.encode(PROMPTS[number]), list[int]()
    chance, side = random.Random(number), 0
    body = {"prompt_ids": prompt, **options_of(sampling, MAX_TOKENS)}
    with httpx.Client(base_url=verifier.url, timeout=60, trust_env=False) as http:
        named = {"session_id": f"tree-{number}"}
        right = http.post("/generate", json=body).json()["token_ids"]
        reply = http.post("/prefill", json=body | named).json()
        written += reply["tokens"]
        while reply["finish_reason"] is None:
            at = len(written)
            follows = right[at : at + chance.randint(0, 6)] if written == right[:at] else []
            draft = random_tree(chance, len(prompt) + at, follows, 4000, wrong=5)
            asked = {"position": draft.position, "draft_tokens": draft.ids, "draft_parents": draft.parents}
            reply = http.post("/verify", json=named | asked).json()
            written += reply["tokens"]
            path = reply.get("accepted_path") or []
            side += path != list(range(len(path)))
    assert side > 3, "paths beside the first one were accepted, too"
    flips = reference.flips(prompt, written, sampling) if written != right else []
    count_flips(len(written), flips)
    assert all(margin < EPSILON for margin in flips), f"differs at more than near-ties: {flips}"
