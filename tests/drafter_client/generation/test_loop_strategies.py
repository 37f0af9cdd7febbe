"""The draft loop by every strategy, over a real verifier: whose text it is, what is refused, what is told."""

from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.errors import BadReply, StrategyRefused
from drafter_client.http.client import VerifierClient
from drafter_client.metrics.token_source import TokenSource
from drafters.base import Drafter
from drafters.draft_model import ModelDrafter
from drafters.lookup import NgramDrafter
from speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy, effective_sampling
from speculation.policy.schedule import LOCKSTEP, Mechanisms
from speculation.sampling.distribution import probabilities
from speculation.sampling.sampling import Sampling
from tests.drafter_client.http.fake_transports import Canned, Faulty
from tests.drafter_client.http.test_client_retry import _Every, _over
from tests.drafter_client.support import (
    ALL,
    GREEDY,
    PROMPT,
    WARM,
    WAYS,
    Run,
    Scenario,
    Verifier,
    generate,
    options_of,
    serving,
    target_alone,
    toy_drafter,
)
from tests.speculation import chi_square

INVARIANT = pytest.mark.parametrize("strategy", sorted(DRAFTER_INVARIANT))
ONE_AT_A_TIME = pytest.mark.parametrize("strategy", [Strategy.PROBABILISTIC, Strategy.THRESHOLD])
COUNT = 24


def asked(strategy: Strategy, sampling: Sampling = WARM, count: int = COUNT, **more: Any) -> dict[str, Any]:
    threshold = {"threshold": 0.2} if strategy is Strategy.THRESHOLD and "threshold" not in more else {}
    return {**options_of(sampling, count), "strategy": str(strategy), **threshold, **more}


def drawing(sampling: Sampling = WARM, agreement: float = 0.6) -> Drafter:
    return ModelDrafter(ScriptedBackend(Script(seed=1, agreement=agreement)), sampling, draws=True)


@INVARIANT
@pytest.mark.parametrize("mechanisms", [LOCKSTEP, *WAYS.values()], ids=["lockstep", *WAYS])
def test_the_text_is_the_targets_own_whatever_is_guessed(
    client: VerifierClient, strategy: Strategy, mechanisms: Mechanisms
) -> None:
    sampling = effective_sampling(strategy, WARM)
    run = generate(client, toy_drafter(0.7, sampling), mechanisms=mechanisms, **asked(strategy))
    assert run.tokens == target_alone(sampling, COUNT)
    if strategy is Strategy.GREEDY:
        assert run.stats.accepted == 0
        sources = {source for piece in run.committed for _, source in piece.tokens}
        assert TokenSource.ACCEPTED not in sources


@ONE_AT_A_TIME
@pytest.mark.parametrize("mechanisms", WAYS.values(), ids=WAYS)
def test_nothing_is_sent_where_the_text_would_depend_on_timing(strategy: Strategy, mechanisms: Mechanisms) -> None:
    transport = Canned()
    with (
        closing(VerifierClient("http://v", transport=transport)) as client,
        pytest.raises(StrategyRefused, match=f"the strategy {strategy} goes in lockstep only: .* depend on timing"),
    ):
        generate(client, drawing(), mechanisms=mechanisms, **asked(strategy))
    assert not transport.asked


@pytest.mark.parametrize("length", [None, 0, 1, 4])
@pytest.mark.parametrize("make", [drawing, lambda: NgramDrafter(), lambda: Scenario(lambda tokens: 7)])
def test_by_coins_with_any_drafter(client: VerifierClient, length: int | None, make: Any) -> None:
    """One that has no distribution to draw from is taken to be sure of what it says."""
    first, again = (generate(client, make(), length, **asked(Strategy.PROBABILISTIC)) for _ in range(2))
    assert len(first.tokens) == len(again.tokens) == COUNT
    if length is not None:  # else measured times decide which places are drafted for
        assert first.tokens == again.tokens
    if length == 0:
        assert first.tokens == target_alone(WARM, COUNT)


def test_by_coins_at_temperature_0_it_is_the_targets_argmax(client: VerifierClient) -> None:
    run = generate(client, drawing(GREEDY), 4, **asked(Strategy.PROBABILISTIC, GREEDY))
    assert run.tokens == target_alone(GREEDY, COUNT)
    assert run.stats.accepted > 0


def test_a_twin_drafter_has_nearly_all_its_coins_fall_its_way(client: VerifierClient) -> None:
    sampling = Sampling(20, 0.3)  # so that what is cut off of the drafter's distribution is next to nothing
    run = generate(client, drawing(sampling, 1.0), 4, **asked(Strategy.PROBABILISTIC, sampling, 100))
    assert run.stats.drafted > 60
    assert run.stats.accepted >= 0.97 * run.stats.drafted
    assert run.tokens != target_alone(sampling, 100), "with noise of its own"


def test_lost_replies_change_nothing(verifier: Verifier) -> None:
    for strategy in Strategy:
        drafter = drawing() if strategy is Strategy.PROBABILISTIC else toy_drafter(0.6, WARM)
        with closing(VerifierClient(verifier.url)) as client:
            expected = generate(client, drafter, 3, **asked(strategy)).tokens
        drafter = drawing() if strategy is Strategy.PROBABILISTIC else toy_drafter(0.6, WARM)
        with _over(Faulty(verifier.url, after=_Every(2)), verifier.url) as client:
            assert generate(client, drafter, 3, **asked(strategy)).tokens == expected


def test_a_threshold_of_nothing_takes_all_that_could_be_said(client: VerifierClient) -> None:
    run = generate(client, toy_drafter(0.3, WARM), 4, **asked(Strategy.THRESHOLD, threshold=0.0))
    assert run.stats.accepted == run.stats.drafted > 0
    assert run.tokens != target_alone(WARM, COUNT)


def test_a_threshold_of_nearly_all_leaves_the_text_to_the_target(client: VerifierClient) -> None:
    run = generate(client, toy_drafter(0.3, WARM), 4, **asked(Strategy.THRESHOLD, threshold=0.999999))
    assert run.tokens == target_alone(WARM, COUNT)


def told(run: Run) -> list[int]:
    pieces = [each for piece in run.committed for each in piece.decisions or ()]
    assert pieces == run.stats.decisions
    return [each.token for each in pieces]


@pytest.mark.parametrize("strategy", Strategy)
def test_every_token_is_explained_where_that_is_asked_for(client: VerifierClient, strategy: Strategy) -> None:
    drafter = drawing() if strategy is Strategy.PROBABILISTIC else toy_drafter(0.6, effective_sampling(strategy, WARM))
    run = generate(client, drafter, 3, **asked(strategy, explain=True))
    assert told(run) == run.tokens
    responses = Counter(each.verdict for each in run.stats.decisions)
    assert responses["rejected"] and responses["own"]
    if strategy is not Strategy.GREEDY:
        assert responses["accepted"]
    if strategy is not Strategy.THRESHOLD:  # its own choice may be the very draft that it turned down
        assert responses["accepted"] == run.stats.accepted
    assert generate(client, drafter, 3, **asked(strategy)).stats.decisions == []


@pytest.mark.parametrize("mechanisms", [ALL, WAYS["several in flight"]], ids=["all", "several in flight"])
def test_and_where_several_guesses_are_under_way(client: VerifierClient, mechanisms: Mechanisms) -> None:
    run = generate(client, toy_drafter(0.8, WARM), mechanisms=mechanisms, **asked(Strategy.COUPLED, explain=True))
    assert told(run) == run.tokens == target_alone(WARM, COUNT)


def test_reasons_that_were_asked_for_and_do_not_come(client: VerifierClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drafter_client.http.responses.decisions_on", lambda *_: None)
    with pytest.raises(BadReply, match="decisions are missing, and were asked for"):
        generate(client, toy_drafter(), 3, **asked(Strategy.COUPLED, explain=True))


@pytest.mark.parametrize("drafts", [1, 3])
def test_by_coins_the_text_is_a_sample_of_the_target(drafts: int) -> None:
    """The whole pair, text by text: the second and third token of three hundred of them."""
    script, ids = Script(seed=2, sharpness=2.0, support=3), range(3)
    target, stranger = ScriptedBackend(script), ScriptedBackend(replace(script, agreement=0.0))

    def p(*before: int) -> list[float]:
        return probabilities(target.logits_after([*PROMPT, *before]), Sampling(0, 1.0)).tolist()

    found: Counter[tuple[int, int]] = Counter()
    with serving(ScriptedBackend(script)) as verifier, closing(VerifierClient(verifier.url)) as client:
        for seed in range(300):
            sampling = Sampling(seed, 1.0)
            drafter = ModelDrafter(stranger, sampling, draws=True)
            tokens = generate(client, drafter, drafts, **asked(Strategy.PROBABILISTIC, sampling, 3)).tokens
            stranger.release(0)
            found[tokens[1], tokens[2]] += 1
    pairs = list(product(ids, ids))
    expected = [sum(p()[first] * p(first)[b] * p(first, b)[c] for first in ids) for b, c in pairs]
    assert chi_square.fits_pooled([found[pair] for pair in pairs], expected)
