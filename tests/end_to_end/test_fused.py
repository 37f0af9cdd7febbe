"""Texts that are written at once in several modes, and resumed ones, are the target's."""

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from drafter_client.http.client import VerifierClient
from models import DEFAULT_DRAFT
from specpair.speculation.drafting.composed_context import SIZES
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier, generate, options_of, running
from tests.end_to_end.conftest import CountFlips, MakeDrafter
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import CONTEXT, Reference
from verifier_server.settings import Settings

pytestmark = pytest.mark.slow


COUNT = 64


def write(verifier: Verifier, prompt: list[int], sampling: Sampling, **options: object) -> dict[str, Any]:
    body = {"prompt_ids": prompt, **options_of(sampling, COUNT), **options}
    with httpx.Client(base_url=verifier.url, timeout=60, trust_env=False) as http:
        response = http.post("/generate", json=body)
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    return reply


def test_concurrent_fused_and_remote_texts_equal_the_target_s(reference: Reference, make_drafter: MakeDrafter) -> None:
    """With `deterministic`, so that logits do not depend on which texts share a pass."""
    sampling = Sampling(seed=3, temperature=0.8)
    prompts = [reference.encode(text) for text in PROMPTS[:5]]
    settings = Settings(
        slots=3,
        context=CONTEXT,
        threads=1,
        deterministic=True,
        draft_model=DEFAULT_DRAFT,
        draft_slots=2,
        draft_threads=1,
    )
    with (
        running(settings) as verifier,
        ThreadPoolExecutor(4) as threads,
        closing(VerifierClient(verifier.url)) as client,
    ):
        fused = [threads.submit(write, verifier, prompt, sampling, mode="fused") for prompt in prompts[1:]]
        drafter = make_drafter("small draft", sampling)
        remote = generate(client, drafter, prompt=prompts[0], info=client.model(), **options_of(sampling, COUNT))
        texts = [remote.tokens, *(each.result()["token_ids"] for each in fused)]
        verifier.service.engine.check_integrity()
        assert texts == [write(verifier, prompt, sampling)["token_ids"] for prompt in prompts]


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
    verifier: Verifier, reference: Reference, count_flips: CountFlips
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


def test_texts_at_once_with_prompts_of_which_parts_are_read_equal_the_target_s(reference: Reference) -> None:
    """The prompts are too long for the draft model's context. The next turn goes on with the parts that are there."""
    lines = Path(argparse.__file__).read_text(encoding="utf-8").splitlines(keepends=True)
    prompts = [reference.encode("".join(lines[first:]))[:1900] for first in (0, 300, 600)]
    settings = Settings(
        slots=3, context=2304, threads=1, deterministic=True, draft_model=DEFAULT_DRAFT, draft_threads=1
    )
    with running(settings) as verifier, ThreadPoolExecutor(3) as threads:
        for turn, draft_n in enumerate((None, 3, None)):
            sampling = Sampling(seed=turn, temperature=0.4 * turn)
            given: dict[str, Any] = {"sampling": sampling, "mode": "fused", "draft_n": draft_n}
            replies = [each.result() for each in [threads.submit(write, verifier, each, **given) for each in prompts]]
            for prompt, reply in zip(prompts, replies, strict=True):
                assert reply["token_ids"] == write(verifier, prompt, sampling, mode="target")["token_ids"]
                context = reply["speculation"]["draft_context"]
                assert context["sink"] == SIZES.sink and sum(context.values()) - context["of"] <= SIZES.most
            prompts = [[*prompt, *reference.encode("\n\nclass Another:\n")] for prompt in prompts]
        verifier.service.engine.check_integrity()
