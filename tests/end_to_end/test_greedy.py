"""The shipped pair at temperature 0 writes the target's text, with any drafter, draft length and schedule.

Each combination of drafter and length writes 24 prompts of 128 tokens. In the exact test, each combination takes a
different sixth of the prompts, or all of them with FULL_MATRIX=1 in the environment.
"""

import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from drafter_client.http.client import VerifierClient
from models import DEFAULT_TARGET
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier, generate, options_of, running
from tests.end_to_end.conftest import CountFlips, MakeDrafter
from tests.end_to_end.prompts import OVERLAPPED, PROMPTS, how
from tests.end_to_end.reference import CONTEXT, MAX_TOKENS, Reference, ends_where_it_should, model
from verifier_server.settings import Settings

NAMES = ("small draft", "junk", "target itself")
LENGTHS = ("1", "4", "8", "lockstep", *OVERLAPPED)
COMBINATIONS = [(name, length) for name in NAMES for length in LENGTHS]
QUICK = (("small draft", "auto"), ("junk", "8"), ("target itself", "lockstep"))  # part of `make test`
EACH = pytest.mark.parametrize(
    ("name", "length"),
    [pytest.param(*each, marks=() if each in QUICK else pytest.mark.slow) for each in COMBINATIONS],
)


def _prompts(name: str, length: str, one_in: int) -> list[str]:
    if os.environ.get("FULL_MATRIX") == "1":
        return list(PROMPTS)
    return list(PROMPTS[COMBINATIONS.index((name, length)) % one_in :: one_in])


@EACH
def test_greedy_text_equals_plain_decoding(
    client: VerifierClient,
    reference: Reference,
    make_drafter: MakeDrafter,
    count_flips: CountFlips,
    name: str,
    length: str,
) -> None:
    flips: list[float] = []
    drafted = accepted = written = 0
    info = client.model()
    if name == "target itself":  # of a tree, what stands beside the target's own tokens is rejected
        info = info.model_copy(update={"trees": False})
    for text in PROMPTS[::12] if (name, length) in QUICK else PROMPTS:
        prompt = reference.encode(text)
        run = generate(client, make_drafter(name), prompt=prompt, info=info, max_tokens=MAX_TOKENS, **how(length))
        assert ends_where_it_should(reference, run.tokens, MAX_TOKENS)
        flips += reference.flips(prompt, run.tokens)
        written += len(run.tokens)
        drafted, accepted = drafted + run.stats.drafted, accepted + run.stats.accepted
    count_flips(written, flips)
    assert 0 <= accepted <= drafted
    if length == "auto":  # this verifier is so fast that few draft tokens arrive in time
        return
    if name == "target itself":  # its draft tokens are rejected only at near-ties, where either text may flip
        assert drafted > 0 and drafted - accepted <= 16 * (len(flips) + 1)
    if name == "junk":
        assert accepted <= 0.02 * drafted
    if name == "small draft":
        assert 0.2 < accepted / drafted < 1.0


@pytest.fixture(scope="module")
def exact() -> Iterator[Reference]:
    with model(DEFAULT_TARGET, deterministic=True) as backend:
        yield Reference(backend)


@pytest.fixture(scope="module")
def exact_verifier() -> Iterator[Verifier]:
    with running(Settings(slots=2, context=CONTEXT, threads=1, deterministic=True)) as started:
        yield started


@EACH
def test_deterministic_text_equals_plain_decoding_exactly(
    exact_verifier: Verifier, exact: Reference, make_drafter: MakeDrafter, name: str, length: str
) -> None:
    for sampling in (Sampling(), Sampling(seed=11, temperature=0.8, top_k=40, top_p=0.95)):
        with closing(VerifierClient(exact_verifier.url)) as client:
            info = client.model()
            prompts = _prompts(name, length, 6)[:: 4 if (name, length) in QUICK else 1]
            for text in prompts if sampling.greedy else prompts[::4]:
                prompt = exact.encode(text)
                drafter = make_drafter(name, sampling, deterministic=True)
                options = {**how(length), **options_of(sampling, MAX_TOKENS)}
                run = generate(client, drafter, prompt=prompt, info=info, **options)
                assert run.tokens == exact.continues(prompt, MAX_TOKENS, sampling)
                if name == "target itself" and length not in OVERLAPPED:
                    assert run.stats.accepted == run.stats.drafted
