"""Texts of all modes, of prompt files and resumed ones are the target's."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from drafter_client.http.client import VerifierClient
from models import DEFAULT_DRAFT, DEFAULT_TWIN
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier, generate, options_of, running
from tests.end_to_end.conftest import MakeDrafter
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import CONTEXT, EPSILON, Reference, ends_where_it_should
from tests.paths import ROOT
from verifier_server.settings import Settings

pytestmark = pytest.mark.slow


COUNT = 64
MODELS = {"small draft": DEFAULT_DRAFT, "q4 twin": DEFAULT_TWIN}
Count = Callable[[int, list[float]], None]


@pytest.fixture(scope="module", params=MODELS)
def fused_verifier(request: pytest.FixtureRequest) -> Iterator[tuple[str, Verifier]]:
    """The default target and a draft model on the server, with default settings, each on one thread."""
    model = MODELS[request.param]
    settings = Settings(slots=3, context=CONTEXT, threads=1, draft_model=model, draft_slots=2, draft_threads=1)
    with running(settings) as started:
        yield request.param, started


def write(verifier: Verifier, prompt: list[int], sampling: Sampling, **options: object) -> dict[str, object]:
    body = {"prompt_ids": prompt, **options_of(sampling, COUNT), **options}
    with httpx.Client(base_url=verifier.url, timeout=60, trust_env=False) as http:
        response = http.post("/generate", json=body)
    assert response.status_code == 200, response.text
    reply: dict[str, object] = response.json()
    return reply


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_fused_remote_and_target_modes_write_the_same_text(
    fused_verifier: tuple[str, Verifier],
    reference: Reference,
    make_drafter: MakeDrafter,
    count_flips: Count,
    temperature: float,
) -> None:
    name, verifier = fused_verifier
    flips: list[float] = []
    written = drafted = accepted = 0
    with closing(VerifierClient(verifier.url)) as client:
        info = client.model()
        for number, text in enumerate(PROMPTS[::6]):
            sampling = Sampling(seed=number, temperature=temperature)
            prompt = reference.encode(text)
            remote = generate(
                client, make_drafter(name, sampling), prompt=prompt, info=info, **options_of(sampling, COUNT)
            )
            texts = [remote.tokens]
            for length in (None, 4):
                fused = write(verifier, prompt, sampling, mode="fused", draft_n=length)
                assert isinstance(fused["token_ids"], list) and isinstance(fused["speculation"], dict)
                texts.append(fused["token_ids"])
                drafted += fused["speculation"]["drafted"]
                accepted += fused["speculation"]["accepted"]
            plain = write(verifier, prompt, sampling)
            assert isinstance(plain["token_ids"], list)
            for tokens in texts:
                assert ends_where_it_should(reference, tokens, COUNT)
                written += len(tokens)
                if tokens != plain["token_ids"]:
                    flips += reference.flips(prompt, tokens, sampling)
    count_flips(written, flips)
    assert all(margin < EPSILON for margin in flips), f"differs at more than near-ties: {flips}"
    assert accepted > 0.2 * drafted > 0
    assert plain["mode"] == "target" and info.name == "stdlib-target-q8_0"


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


MODEL = ["--threads", "1", "--context", str(CONTEXT)]
WAYS = {
    "model": MODEL,
    "model, three at a time": [*MODEL, "--concurrency", "3"],
    "ngram, three at a time": ["--backend", "ngram", "--concurrency", "3"],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_each_text_of_a_prompt_file_equals_plain_decoding(
    verifier: Verifier,
    reference: Reference,
    count_flips: Callable[[int, list[float]], None],
    tmp_path: Path,
    way: list[str],
) -> None:
    for line in _written(verifier, tmp_path, PROMPTS[:6], way):
        sampling = Sampling(seed=10 + line["index"], temperature=0.8)
        flips = reference.flips(reference.encode(line["prompt"]), line["token_ids"], sampling)
        count_flips(len(line["token_ids"]), flips)
        assert all(margin < EPSILON for margin in flips), (line["index"], flips)


def _written(verifier: Verifier, folder: Path, texts: Sequence[str], way: list[str]) -> list[dict[str, Any]]:
    """The results of the texts, in order."""
    lines_in = [{"prompt": text, "id": f"p{at}", "seed": 10 + at} for at, text in enumerate(texts)]
    prompts, output = folder / "prompts.jsonl", folder / "results.jsonl"
    prompts.write_text("".join(json.dumps(each) + "\n" for each in lines_in), encoding="utf-8")
    command = [sys.executable, "-m", "drafter_client", "--verifier", verifier.url, "--prompt-file", str(prompts)]
    command += ["--max-tokens", "32", "--temperature", "0.8", "--output", str(output), *way]
    sessions = verifier.sessions  # of other clients, whose sessions have not expired yet
    ran = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    assert "mean acceptance length" in ran.stderr and verifier.sessions == sessions
    lines: list[dict[str, Any]] = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [(line["index"], line["id"], line["prompt"]) for line in lines] == [
        (at, each["id"], each["prompt"]) for at, each in enumerate(lines_in)
    ]
    return lines


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
