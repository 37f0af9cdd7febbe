"""The shipped pair at temperature 0.8: with equal seeds, the pair writes the text of the target alone.

24 prompts; each combination of drafter and draft length takes a few of them in turn, so that all are used.
"""

from collections.abc import Callable

import pytest

from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import TextSession
from specpair.protocol.responses import GenerateResponse
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import generate, options_of
from tests.end_to_end.conftest import MakeDrafter
from tests.end_to_end.prompts import PROMPTS, how
from tests.end_to_end.reference import EPSILON, MAX_TOKENS, Reference

pytestmark = pytest.mark.slow

NAMES = ("small draft", "q4 twin", "junk")
LENGTHS = ("1", "4", "auto")
COMBINATIONS = [(name, length) for name in NAMES for length in LENGTHS]


def _alone(client: VerifierClient, prompt: list[int], sampling: Sampling) -> list[int]:
    """The text of the target alone, by `/generate`."""
    *_, end = client.generate(TextSession(prompt), options_of(sampling, MAX_TOKENS))
    assert isinstance(end, GenerateResponse)
    return end.token_ids


@pytest.mark.parametrize(("name", "length"), COMBINATIONS)
def test_sampled_text_depends_on_the_seed_only(
    client: VerifierClient,
    reference: Reference,
    make_drafter: MakeDrafter,
    count_flips: Callable[[int, list[float]], None],
    name: str,
    length: str,
) -> None:
    turn = COMBINATIONS.index((name, length))
    flips: list[float] = []
    written = drafted = accepted = 0
    info = client.model()
    for number, text in enumerate(PROMPTS[turn % 6 :: 6]):
        sampling = Sampling(seed=1000 * turn + number, temperature=0.8)
        prompt = reference.encode(text)
        drafter = make_drafter(name, sampling)
        options = {**how(length), **options_of(sampling, MAX_TOKENS)}
        run = generate(client, drafter, prompt=prompt, info=info, **options)
        written += len(run.tokens)
        drafted, accepted = drafted + run.stats.drafted, accepted + run.stats.accepted
        if run.tokens != _alone(client, prompt, sampling):
            flips += reference.flips(prompt, run.tokens, sampling)
            assert flips, "the pair agrees with plain decoding here, and /generate does not"
    count_flips(written, flips)
    assert all(margin < EPSILON for margin in flips), f"differs at more than near-ties: {flips}"
    if name != "junk" and length != "auto":
        assert accepted > 0.2 * drafted > 0  # the shared noise makes two samplers agree


def test_different_seeds_give_different_texts(client: VerifierClient, reference: Reference) -> None:
    prompt = reference.encode(PROMPTS[0])
    texts = [_alone(client, prompt, Sampling(seed=seed, temperature=0.8)) for seed in range(4)]
    assert len({tuple(text) for text in texts}) == 4


def test_generate_equals_plain_decoding(
    client: VerifierClient, reference: Reference, count_flips: Callable[[int, list[float]], None]
) -> None:
    flips: list[float] = []
    written = 0
    for number, text in enumerate(PROMPTS[::6]):
        sampling = Sampling(seed=number, temperature=0.8)
        prompt = reference.encode(text)
        tokens = _alone(client, prompt, sampling)
        flips += reference.flips(prompt, tokens, sampling)
        written += len(tokens)
    count_flips(written, flips)
    assert all(margin < EPSILON for margin in flips)
