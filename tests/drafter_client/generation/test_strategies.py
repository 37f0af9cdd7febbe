"""Drafter and verifier under every strategy, a real verifier: the text, what is refused, and explained decisions."""

from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.errors import StrategyRefused
from drafter_client.http.client import VerifierClient
from specpair.drafters.base import Drafter
from specpair.drafters.draft_model import ModelDrafter
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy, effective_sampling
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.distribution import probabilities
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.http.fake_transports import Canned
from tests.drafter_client.support import (
    PROMPT,
    WARM,
    WAYS,
    Run,
    generate,
    options_of,
    serving,
    target_alone,
    toy_drafter,
)
from tests.specpair.speculation import chi_square

INVARIANT = pytest.mark.parametrize("strategy", sorted(DRAFTER_INVARIANT))
LOCKSTEP_ONLY = pytest.mark.parametrize("strategy", [Strategy.PROBABILISTIC, Strategy.THRESHOLD])
COUNT = 24


def options_for(strategy: Strategy, sampling: Sampling = WARM, count: int = COUNT, **more: Any) -> dict[str, Any]:
    threshold = {"threshold": 0.2} if strategy is Strategy.THRESHOLD and "threshold" not in more else {}
    return {**options_of(sampling, count), "strategy": str(strategy), **threshold, **more}


def sampling_drafter(sampling: Sampling = WARM, agreement: float = 0.6) -> Drafter:
    return ModelDrafter(ScriptedBackend(Script(seed=1, agreement=agreement)), sampling, draws=True)


@INVARIANT
@pytest.mark.parametrize("mechanisms", [LOCKSTEP, *WAYS.values()], ids=["lockstep", *WAYS])
def test_text_equals_target_alone_under_invariant_strategies(
    client: VerifierClient, strategy: Strategy, mechanisms: Mechanisms
) -> None:
    sampling = effective_sampling(strategy, WARM)
    run = generate(client, toy_drafter(0.7, sampling), mechanisms=mechanisms, **options_for(strategy))
    assert run.tokens == target_alone(sampling, COUNT)
    if strategy is Strategy.GREEDY:
        assert run.stats.accepted == 0
        sources = {source for piece in run.committed for _, source in piece.tokens}
        assert TokenSource.ACCEPTED not in sources


@LOCKSTEP_ONLY
@pytest.mark.parametrize("mechanisms", WAYS.values(), ids=WAYS)
def test_strategies_that_depend_on_timing_are_refused_before_sending(
    strategy: Strategy, mechanisms: Mechanisms
) -> None:
    transport = Canned()
    with (
        closing(VerifierClient("http://v", transport=transport)) as client,
        pytest.raises(StrategyRefused, match=f"the strategy {strategy} works in lockstep only: .* depend on timing"),
    ):
        generate(client, sampling_drafter(), mechanisms=mechanisms, **options_for(strategy))
    assert not transport.asked


def test_probabilistic_accepts_nearly_all_drafts_of_an_equal_model(client: VerifierClient) -> None:
    sampling = Sampling(20, 0.3)  # truncating the drafter's distribution then removes almost nothing
    run = generate(client, sampling_drafter(sampling, 1.0), 4, **options_for(Strategy.PROBABILISTIC, sampling, 100))
    assert run.stats.drafted > 60
    assert run.stats.accepted >= 0.97 * run.stats.drafted
    assert run.tokens != target_alone(sampling, 100), "draft tokens are sampled with other noise than the target's"


def explained_tokens(run: Run) -> list[int]:
    pieces = [
        each for piece in run.committed for each in filter(None, (piece.details and piece.details.decisions) or ())
    ]
    assert pieces == run.stats.decisions
    return [each.token for each in pieces]


@pytest.mark.parametrize("strategy", Strategy)
def test_explain_gives_a_decision_for_every_token(client: VerifierClient, strategy: Strategy) -> None:
    drafter = (
        sampling_drafter()
        if strategy is Strategy.PROBABILISTIC
        else toy_drafter(0.6, effective_sampling(strategy, WARM))
    )
    run = generate(client, drafter, 3, **options_for(strategy, explain=True))
    assert explained_tokens(run) == run.tokens
    verdicts = Counter(each.verdict for each in run.stats.decisions)
    assert verdicts["rejected"] and verdicts["own"]
    if strategy is not Strategy.GREEDY:
        assert verdicts["accepted"]
    if strategy is not Strategy.THRESHOLD:  # there the target's choice may equal the rejected draft token
        assert verdicts["accepted"] == run.stats.accepted
    assert generate(client, drafter, 3, **options_for(strategy)).stats.decisions == []


@pytest.mark.parametrize("drafts", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_probabilistic_text_is_a_sample_of_the_target(drafts: int) -> None:
    """A chi-square test of the second and third token of 300 texts by the whole pair."""
    script, ids = Script(seed=2, sharpness=2.0, support=3), range(3)
    target, unrelated = ScriptedBackend(script), ScriptedBackend(replace(script, agreement=0.0))

    def p(*before: int) -> list[float]:
        return probabilities(target.logits_after([*PROMPT, *before]), Sampling(0, 1.0)).tolist()

    found: Counter[tuple[int, int]] = Counter()
    with serving(ScriptedBackend(script)) as verifier, closing(VerifierClient(verifier.url)) as client:
        for seed in range(300):
            sampling = Sampling(seed, 1.0)
            drafter = ModelDrafter(unrelated, sampling, draws=True)
            tokens = generate(client, drafter, drafts, **options_for(Strategy.PROBABILISTIC, sampling, 3)).tokens
            unrelated.release(0)
            found[tokens[1], tokens[2]] += 1
    pairs = list(product(ids, ids))
    expected = [sum(p()[first] * p(first)[b] * p(first, b)[c] for first in ids) for b, c in pairs]
    assert chi_square.fits_pooled([found[pair] for pair in pairs], expected)
