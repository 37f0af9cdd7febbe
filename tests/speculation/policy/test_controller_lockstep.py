"""How many drafts a round pay, in worlds where costs and agreement are known: virtual time, no model, no network."""

from dataclasses import replace

import pytest

from tests.speculation.policy.lockstep_world import FIXED_LENGTHS, TOKENS, World, best_fixed, fixed, live

pytestmark = pytest.mark.slow


def _steady(easy: float, hard: float) -> tuple[tuple[int, float, float], ...]:
    return ((0, easy, hard),)


Costs = tuple[float, float, float, float]
LOOPBACK, LAN, FAR = (0.35, 0.3, 1.5, 0.15), (5.0, 5.0, 35.0, 1.0), (1.0, 60.0, 20.0, 0.5)
DEAR_DRAFTS, DEAR_WIDTH = (4.0, 0.5, 4.5, 1.0), (2.0, 2.0, 8.0, 3.0)
COSTS = pytest.mark.parametrize(
    "costs",
    [LOOPBACK, LAN, FAR, DEAR_DRAFTS, DEAR_WIDTH],
    ids=["loopback", "lan", "far", "dear drafts", "dear width"],
)


@COSTS
@pytest.mark.parametrize("length", FIXED_LENGTHS)
def test_a_fixed_length_is_kept_in_every_round_and_takes_the_time_that_it_takes(costs: Costs, length: int) -> None:
    world = World(*costs, _steady(0.6, 0.4))
    run, expected = live(world, length), fixed(world, length)
    assert set(run.made) == set(run.sent) == {length}
    assert run.tokens == expected.tokens
    assert run.milliseconds == pytest.approx(expected.milliseconds)


@COSTS
@pytest.mark.parametrize("agreement", [0.2, 0.5, 0.8, 0.97])
def test_it_is_as_good_as_the_best_fixed_length_whatever_that_is(costs: Costs, agreement: float) -> None:
    world = World(*costs, _steady(agreement, agreement))
    assert live(world, None).rate() >= 0.95 * best_fixed(world)


@COSTS
@pytest.mark.parametrize("agreement", [0.0, 0.1])
def test_a_bad_drafter_never_costs_more_than_a_few_percent(costs: Costs, agreement: float) -> None:
    world = World(*costs, _steady(agreement, agreement))
    assert live(world, None).rate() >= 0.97 * fixed(world, 0).rate()


@COSTS
@pytest.mark.parametrize(
    "confidence", [(0.9, 0.3), (0.99, 0.98), (0.2, 0.1), (0.3, 0.9)], ids=["honest", "vain", "shy", "wrong"]
)
def test_what_the_drafter_thinks_of_itself_is_taken_for_what_it_is_worth(
    costs: Costs, confidence: tuple[float, float]
) -> None:
    world = World(*costs, _steady(0.9, 0.3), confidence)
    assert live(world, None).rate() >= 0.95 * best_fixed(world)


@pytest.mark.parametrize("costs", [LOOPBACK, LAN], ids=["loopback", "lan"])
def test_honest_confidence_beats_every_fixed_length(costs: Costs) -> None:
    world = World(*costs, _steady(0.97, 0.1), (0.97, 0.1))
    assert live(world, None).rate() > 1.08 * best_fixed(world)


@pytest.mark.parametrize("costs", [LOOPBACK, LAN, FAR], ids=["loopback", "lan", "far"])
@pytest.mark.parametrize("agreement", [0.5, 0.9])
def test_spikes_of_the_network_do_not_mislead_it(costs: Costs, agreement: float) -> None:
    world = World(*costs, _steady(agreement, agreement), spikes=0.05)
    assert live(world, None).rate() >= 0.9 * best_fixed(world)


@COSTS
def test_junk_ends_with_hardly_any_time_spent_on_drafts(costs: Costs) -> None:
    drafts = live(World(*costs, _steady(0.0, 0.0)), None).drafts_a_round(TOKENS // 2)
    assert drafts * costs[0] < 0.03 * (costs[1] + costs[2])


@pytest.mark.parametrize("costs", [LOOPBACK, LAN, FAR, DEAR_WIDTH], ids=["loopback", "lan", "far", "dear width"])
def test_a_drafter_that_becomes_good_is_noticed(costs: Costs) -> None:
    world = World(*costs, ((0, 0.0, 0.0), (200, 0.95, 0.95)))
    assert live(world, None).rate(since=400) >= 0.8 * best_fixed(world, since=400)


@COSTS
def test_a_drafter_that_becomes_junk_is_dropped(costs: Costs) -> None:
    world = World(*costs, ((0, 0.95, 0.95), (200, 0.0, 0.0)))
    assert live(world, None).rate(since=400) >= 0.95 * fixed(world, 0).rate(since=400)


@pytest.mark.parametrize("length", [None, 9], ids=["automatic", "fixed"])
@pytest.mark.parametrize("room", [0, 1, 3])
def test_there_is_never_a_draft_more_than_the_verifier_judges(length: int | None, room: int) -> None:
    outcome = live(World(*FAR, _steady(0.97, 0.97)), length, room=room)
    assert max(outcome.made) == max(outcome.sent) == room


def test_no_draft_is_sent_that_was_not_made() -> None:
    for agreement in (0.1, 0.5, 0.9):
        outcome = live(World(*LOOPBACK, _steady(agreement, agreement)), None)
        assert all(sent <= made for sent, made in zip(outcome.sent, outcome.made, strict=True))


@pytest.mark.parametrize("agreement", [0.0, 1.0])
@pytest.mark.parametrize(
    "costs", [(0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 1e-9, 0.0), (1e6, 0.0, 1e-9, 0.0), (0.0, 0.0, 0.0, 0.0)], ids=str
)
def test_no_costs_however_odd_stop_it(costs: Costs, agreement: float) -> None:
    assert live(World(*costs, _steady(agreement, agreement)), None).tokens[-1] >= TOKENS


STEPS = (
    *(30.0, 35.0, 56.0, 58.0, 79.0, 83.0, 103.0, 109.0, 130.0),
    *(140.0, 150.0, 161.0, 172.0, 184.0, 196.0, 208.0, 220.0),
)


@pytest.mark.parametrize("factor", [1.0, 1.3, 0.7])
@pytest.mark.parametrize("agreement", [0.3, 0.6, 0.9])
def test_what_the_verifier_says_of_its_passes_helps(agreement: float, factor: float) -> None:
    """Also where its passes now take longer or shorter than it says, as long as their proportions hold."""
    world = World(1.0, 0.0, 0.0, 0.0, _steady(agreement, agreement), steps=STEPS)
    told = live(world, None, pass_ms=[factor * ms for ms in STEPS])
    assert told.rate() >= 0.95 * best_fixed(world)
    assert told.rate() >= 0.98 * live(world, None).rate()


NONSENSE = pytest.mark.parametrize(
    "nonsense", [[500.0, 1.0, 700.0] * 6, [1.0] * 17, [1.0, 1000.0], [3.0], [0.0] * 17], ids=lambda said: str(said[:3])
)


@COSTS
@NONSENSE
def test_nonsense_about_passes_is_seen_through(costs: Costs, nonsense: list[float]) -> None:
    world = World(*costs, _steady(0.7, 0.7))
    assert live(world, None, pass_ms=nonsense).rate() >= 0.85 * best_fixed(world)


@pytest.mark.parametrize("prompt", [0, 100, 1000, 8000])
def test_a_long_prompt_does_not_make_drafts_look_dear(prompt: int) -> None:
    """A drafter reads 300 tokens a second and drafts one in 8 ms, for a verifier of 60 ms a step."""
    world = World(8.0, 10.0, 50.0, 3.0, _steady(0.8, 0.8), reading_ms=3.3, prompt=prompt)
    told, best = live(world, None), best_fixed(replace(world, prompt=0))
    assert told.tokens[-1] / (told.milliseconds[-1] - 3.3 * prompt) >= 0.93 * best


def test_reading_up_after_a_silence_does_not_make_drafts_look_dear() -> None:
    """For 400 tokens nothing stands; after that nearly all does, and drafting comes back."""
    world = World(8.0, 10.0, 50.0, 3.0, ((0, 0.02, 0.02), (400, 0.9, 0.9)), reading_ms=3.3, prompt=100)
    told = live(world, None, rounds=600)
    assert told.rate(since=500) >= 0.85 * best_fixed(world, since=500)
