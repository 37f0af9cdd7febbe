"""The shipped pair with every strategy, in lockstep, over a real server."""

from collections.abc import Callable

import pytest

from drafter_client.http.client import VerifierClient
from specpair.speculation.acceptance.strategies import Strategy, effective_sampling
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import generate, options_of
from tests.end_to_end.conftest import MakeDrafter
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import EPSILON, Reference

pytestmark = pytest.mark.slow

TOKENS = 48


@pytest.mark.parametrize("strategy", [Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY])
def test_exact_strategies_write_the_target_s_text(
    client: VerifierClient,
    reference: Reference,
    make_drafter: MakeDrafter,
    count_flips: Callable[[int, list[float]], None],
    strategy: Strategy,
) -> None:
    flips: list[float] = []
    written = 0
    info = client.model()
    for number, text in enumerate(PROMPTS[:4]):
        requested = Sampling(seed=number, temperature=0.8)
        sampling = effective_sampling(strategy, requested)
        prompt = reference.encode(text)
        options = {**options_of(requested, TOKENS), "strategy": str(strategy)}
        drafter = make_drafter("q4 twin", sampling)
        run = generate(client, drafter, 4, prompt, info=info, **options)
        flips += reference.flips(prompt, run.tokens, sampling)
        written += len(run.tokens)
        assert (run.stats.accepted == 0) == (strategy is Strategy.GREEDY)
    count_flips(written, flips)
    assert all(margin < EPSILON for margin in flips), f"differs at more than near-ties: {flips}"


def test_probabilistic_accepts_most_of_the_twin_s_draft_tokens(
    client: VerifierClient, reference: Reference, make_drafter: MakeDrafter
) -> None:
    info, prompt = client.model(), reference.encode(PROMPTS[0])
    sampling = Sampling(seed=3, temperature=0.8)
    options = {**options_of(sampling, TOKENS), "strategy": "probabilistic", "explain": True}
    first, again = (
        generate(client, make_drafter("q4 twin", sampling, draws=True), 4, prompt, info=info, **options)
        for _ in range(2)
    )
    assert first.tokens == again.tokens
    assert first.stats.accepted > 0.5 * first.stats.drafted > 0
    for each in first.stats.decisions:
        if each.verdict == "accepted":
            assert each.token == each.draft
        if each.draft is not None:
            assert each.drawn is not None and each.draft_p is not None and each.q is not None
            assert (each.verdict == "accepted") == (each.drawn < each.draft_p / each.q)


def test_threshold_0_accepts_all_and_a_high_threshold_keeps_the_target_s_text(
    client: VerifierClient, reference: Reference, make_drafter: MakeDrafter
) -> None:
    info, prompt = client.model(), reference.encode(PROMPTS[0])
    sampling = Sampling(seed=3, temperature=0.8)
    options = {**options_of(sampling, TOKENS), "strategy": "threshold"}
    loose = generate(client, make_drafter("small draft", sampling), 4, prompt, info=info, threshold=0.0, **options)
    assert loose.stats.accepted == loose.stats.drafted > 0
    # Where the target is that sure of a token, it samples another one only once in ten thousand times.
    strict = generate(client, make_drafter("small draft", sampling), 4, prompt, info=info, threshold=0.9999, **options)
    flips = reference.flips(prompt, strict.tokens, sampling)
    assert all(margin < EPSILON for margin in flips), f"differs at more than near-ties: {flips}"
