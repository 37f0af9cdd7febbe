"""The shipped pair with both models on the server: server-side drafting writes the same text as other modes."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest

from drafter_client.http.client import VerifierClient
from models import DEFAULT_DRAFT, DEFAULT_TWIN
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier, generate, options_of, running
from tests.end_to_end.conftest import MakeDrafter
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import CONTEXT, EPSILON, Reference, ends_where_it_should
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
