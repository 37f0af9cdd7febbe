"""Texts of a target that drafts with its own head are its own in every mode, and come in fewer passes."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx
import pytest

from drafter_client.http.client import VerifierClient
from models.heads import make_heavy_model
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import ALL, Scenario, Verifier, generate, options_of, running
from tests.end_to_end.prompts import PROMPTS
from verifier_server.settings import Settings

pytestmark = pytest.mark.slow

COUNT = 64
SAMPLINGS = [Sampling(), Sampling(seed=3, temperature=0.8), Sampling(seed=4, temperature=1.0, top_k=20, top_p=0.9)]


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifier]:
    """The default target with its head, padded so that a pass takes several times as long as a step of the head. With
    `deterministic`, so that logits do not depend on the width of a pass."""
    path = tmp_path_factory.mktemp("heavy") / "heavy.gguf"
    make_heavy_model(path, layers=8, width=8)
    with running(Settings(model=path, slots=3, context=512, threads=1, deterministic=True, draft="head")) as started:
        yield started


def written(verifier: Verifier, prompt: Sequence[int], sampling: Sampling, **more: Any) -> dict[str, Any]:
    body = {"prompt_ids": list(prompt), **options_of(sampling, COUNT), **more}
    with httpx.Client(base_url=verifier.url, timeout=120, trust_env=False) as http:
        reply: dict[str, Any] = http.post("/generate", json=body).raise_for_status().json()
    return reply


def prompts(verifier: Verifier) -> list[list[int]]:
    return [verifier.service.engine.info.vocabulary.encode(text) for text in PROMPTS[:4]]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "warm", "filtered"])
@pytest.mark.parametrize("how", [{}, {"draft_n": 2}], ids=["rounds", "fixed length"])
def test_drafts_of_the_head_change_nothing(verifier: Verifier, sampling: Sampling, how: dict[str, int]) -> None:
    with ThreadPoolExecutor(4) as threads:
        drafted = [
            threads.submit(written, verifier, prompt, sampling, mode="fused", **how) for prompt in prompts(verifier)
        ]
        texts = [each.result() for each in drafted]
    verifier.service.engine.check_integrity()
    plain = [written(verifier, prompt, sampling)["token_ids"] for prompt in prompts(verifier)]
    assert [each["token_ids"] for each in texts] == plain
    assert all(each["draft_model"] == "MTP head" for each in texts)


def test_the_head_makes_a_text_in_fewer_passes(verifier: Verifier) -> None:
    [prompt, *_] = prompts(verifier)
    speculation = written(verifier, prompt, SAMPLINGS[1], mode="fused", draft_n=2, cache_salt="new")["speculation"]
    assert 0 < speculation["by_head_accepted"] <= min(speculation["accepted"], speculation["by_head"])
    assert speculation["rounds"] < COUNT - 1


@pytest.mark.parametrize("strategy", ["deterministic", "greedy", "probabilistic", "threshold"])
def test_every_strategy_takes_drafts_of_the_head(verifier: Verifier, strategy: str) -> None:
    [prompt, *_] = prompts(verifier)
    options: dict[str, Any] = {"strategy": strategy, "mode": "fused"} | (
        {"threshold": 0.3} if strategy == "threshold" else {}
    )
    reply = written(verifier, prompt, Sampling(seed=1, temperature=0.7), **options)
    assert len(reply["token_ids"]) == COUNT
    if strategy in ("deterministic", "greedy"):
        assert reply["token_ids"] == written(verifier, prompt, Sampling())["token_ids"]
    else:
        assert reply["speculation"]["accepted"] > 0


@pytest.mark.parametrize("sampling", SAMPLINGS[:2], ids=["greedy", "warm"])
def test_steps_of_the_verifier_alone_with_its_head_change_nothing(verifier: Verifier, sampling: Sampling) -> None:
    """The drafter takes so long that the verifier decodes by itself, with its head."""
    [prompt, *_] = prompts(verifier)

    def slowly(tokens: Sequence[int]) -> int:
        time.sleep(0.1)  # that is what is tested: a drafter slower than the target
        return 7

    with closing(VerifierClient(verifier.url)) as client:
        options = options_of(sampling, COUNT)
        run = generate(client, Scenario(slowly), prompt=prompt, info=client.model(), mechanisms=ALL, **options)
    assert run.tokens == written(verifier, prompt, sampling)["token_ids"]
