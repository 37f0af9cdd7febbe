"""The automatic draft length in lockstep, in worlds with known costs and acceptance, without model and network."""

from dataclasses import replace

import pytest

from tests.specpair.speculation.policy.lockstep_world import FIXED_LENGTHS, TOKENS, World, best_fixed, fixed, generate

pytestmark = pytest.mark.slow


def _steady(easy: float, hard: float) -> tuple[tuple[int, float, float], ...]:
    return ((0, easy, hard),)


Costs = tuple[float, float, float, float]
LOOPBACK = (0.00035, 0.0003, 0.0015, 0.00015)
LAN, FAR = (0.005, 0.005, 0.035, 0.001), (0.001, 0.06, 0.02, 0.0005)
SLOW_DRAFTS, SLOW_WIDTH = (0.004, 0.0005, 0.0045, 0.001), (0.002, 0.002, 0.008, 0.003)
COSTS = pytest.mark.parametrize(
    "costs",
    [LOOPBACK, LAN, FAR, SLOW_DRAFTS, SLOW_WIDTH],
    ids=["loopback", "lan", "far", "slow drafts", "slow width"],
)


@COSTS
@pytest.mark.parametrize("length", FIXED_LENGTHS)
def test_fixed_length_is_kept_in_every_round(costs: Costs, length: int) -> None:
    world = World(*costs, _steady(0.6, 0.4))
    run, expected = generate(world, length), fixed(world, length)
    assert set(run.made) == set(run.sent) == {length}
    assert run.tokens == expected.tokens
    assert run.seconds == pytest.approx(expected.seconds)


@COSTS
@pytest.mark.parametrize("agreement", [0.2, 0.5, 0.8, 0.97])
def test_automatic_length_is_about_as_good_as_the_best_fixed_one(costs: Costs, agreement: float) -> None:
    world = World(*costs, _steady(agreement, agreement))
    assert generate(world, None).rate() >= 0.95 * best_fixed(world)


@COSTS
@pytest.mark.parametrize("agreement", [0.0, 0.1])
def test_bad_drafter_costs_a_few_percent_at_most(costs: Costs, agreement: float) -> None:
    world = World(*costs, _steady(agreement, agreement))
    assert generate(world, None).rate() >= 0.97 * fixed(world, 0).rate()


@COSTS
@pytest.mark.parametrize(
    "confidence",
    [(0.9, 0.3), (0.99, 0.98), (0.2, 0.1), (0.3, 0.9)],
    ids=["honest", "overconfident", "underconfident", "inverted"],
)
def test_confidence_is_calibrated_by_outcomes(costs: Costs, confidence: tuple[float, float]) -> None:
    world = World(*costs, _steady(0.9, 0.3), confidence)
    assert generate(world, None).rate() >= 0.95 * best_fixed(world)


@pytest.mark.parametrize("costs", [LOOPBACK, LAN], ids=["loopback", "lan"])
def test_automatic_length_with_honest_confidence_beats_every_fixed_length(costs: Costs) -> None:
    world = World(*costs, _steady(0.97, 0.1), (0.97, 0.1))
    assert generate(world, None).rate() > 1.08 * best_fixed(world)


@pytest.mark.parametrize("costs", [LOOPBACK, LAN, FAR], ids=["loopback", "lan", "far"])
@pytest.mark.parametrize("agreement", [0.5, 0.9])
def test_network_spikes_do_not_mislead_the_automatic_length(costs: Costs, agreement: float) -> None:
    world = World(*costs, _steady(agreement, agreement), spikes=0.05)
    assert generate(world, None).rate() >= 0.9 * best_fixed(world)


@COSTS
def test_useless_drafter_takes_hardly_any_time_in_the_end(costs: Costs) -> None:
    drafts = generate(World(*costs, _steady(0.0, 0.0)), None).drafts_a_round(TOKENS // 2)
    assert drafts * costs[0] < 0.03 * (costs[1] + costs[2])


@pytest.mark.parametrize("costs", [LOOPBACK, LAN, FAR, SLOW_WIDTH], ids=["loopback", "lan", "far", "slow width"])
def test_drafter_that_becomes_good_is_used_again(costs: Costs) -> None:
    world = World(*costs, ((0, 0.0, 0.0), (200, 0.95, 0.95)))
    assert generate(world, None).rate(since=400) >= 0.8 * best_fixed(world, since=400)


@COSTS
def test_drafter_that_becomes_useless_is_dropped(costs: Costs) -> None:
    world = World(*costs, ((0, 0.95, 0.95), (200, 0.0, 0.0)))
    assert generate(world, None).rate(since=400) >= 0.95 * fixed(world, 0).rate(since=400)


@pytest.mark.parametrize("length", [None, 9], ids=["automatic", "fixed"])
@pytest.mark.parametrize("room", [0, 1, 3])
def test_drafts_are_no_longer_than_the_verifier_judges(length: int | None, room: int) -> None:
    outcome = generate(World(*FAR, _steady(0.97, 0.97)), length, room=room)
    assert max(outcome.made) == max(outcome.sent) == room


def test_no_more_draft_tokens_are_sent_than_were_made() -> None:
    for agreement in (0.1, 0.5, 0.9):
        outcome = generate(World(*LOOPBACK, _steady(agreement, agreement)), None)
        assert all(sent <= made for sent, made in zip(outcome.sent, outcome.made, strict=True))


@pytest.mark.parametrize("agreement", [0.0, 1.0])
@pytest.mark.parametrize(
    "costs", [(0.0, 0.0, 0.001, 0.0), (0.0, 0.0, 1e-12, 0.0), (1e3, 0.0, 1e-12, 0.0), (0.0, 0.0, 0.0, 0.0)], ids=str
)
def test_generation_ends_under_extreme_costs(costs: Costs, agreement: float) -> None:
    assert generate(World(*costs, _steady(agreement, agreement)), None).tokens[-1] >= TOKENS


STEPS = (
    *(0.03, 0.035, 0.056, 0.058, 0.079, 0.083, 0.103, 0.109, 0.13),
    *(0.14, 0.15, 0.161, 0.172, 0.184, 0.196, 0.208, 0.22),
)


@pytest.mark.parametrize("factor", [1.0, 1.3, 0.7])
@pytest.mark.parametrize("agreement", [0.3, 0.6, 0.9])
def test_reported_pass_times_help(agreement: float, factor: float) -> None:
    """They help also where passes now take longer or shorter than reported, as long as the proportions hold."""
    world = World(0.001, 0.0, 0.0, 0.0, _steady(agreement, agreement), steps=STEPS)
    outcome = generate(world, None, pass_times=[factor * each for each in STEPS])
    assert outcome.rate() >= 0.95 * best_fixed(world)
    assert outcome.rate() >= 0.98 * generate(world, None).rate()


WRONG_PASS_TIMES = pytest.mark.parametrize(
    "wrong",
    [[0.5, 0.001, 0.7] * 6, [0.001] * 17, [0.001, 1.0], [0.003], [0.0] * 17],
    ids=lambda times: str(times[:3]),
)


@COSTS
@WRONG_PASS_TIMES
def test_wrong_reported_pass_times_are_corrected(costs: Costs, wrong: list[float]) -> None:
    world = World(*costs, _steady(0.7, 0.7))
    assert generate(world, None, pass_times=wrong).rate() >= 0.85 * best_fixed(world)


@pytest.mark.parametrize("prompt", [0, 100, 1000, 8000])
def test_reading_a_long_prompt_does_not_raise_the_draft_time(prompt: int) -> None:
    """The drafter reads 300 tokens a second and drafts one in 8 ms; a round trip with a pass takes 60 ms."""
    world = World(0.008, 0.01, 0.05, 0.003, _steady(0.8, 0.8), reading=0.0033, prompt=prompt)
    outcome, best = generate(world, None), best_fixed(replace(world, prompt=0))
    assert outcome.tokens[-1] / (outcome.seconds[-1] - 0.0033 * prompt) >= 0.93 * best


def test_catching_up_after_a_pause_does_not_raise_the_draft_time() -> None:
    """For 400 tokens nearly nothing is accepted. After that nearly all is, and drafting resumes."""
    world = World(0.008, 0.01, 0.05, 0.003, ((0, 0.02, 0.02), (400, 0.9, 0.9)), reading=0.0033, prompt=100)
    outcome = generate(world, None, rounds=600)
    assert outcome.rate(since=500) >= 0.85 * best_fixed(world, since=500)
