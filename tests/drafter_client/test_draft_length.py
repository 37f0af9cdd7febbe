"""How far to draft, in worlds where costs and agreement are known: virtual time, no model, no network.

A world fixes beforehand which places of a text a draft would get right, so that every rule is tried on the same text.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from speculation.draft_length import Adaptive, DraftLength, Fixed, Round
from speculation.estimates import Curve

TOKENS, ROUNDS = 600, 200  # a run is as long as both ask for
FIXED_LENGTHS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16)


@dataclass(frozen=True)
class World:
    """Costs in milliseconds, and a drafter: right at a place with its chance, of which its confidence tells something.

    `agreement` is (from this token on, chance at easy places, chance at hard ones), piece by piece; one place in two
    is hard. `confidence` is what the drafter says of easy and hard places.
    """

    draft_ms: float
    exchange_ms: float  # of a verify without drafts
    wider_ms: float  # for each draft that is verified
    agreement: tuple[tuple[int, float, float], ...]
    confidence: tuple[float, float] = (0.5, 0.5)
    spikes: float = 0.0  # share of rounds in which the network takes ten times as long
    reading_ms: float = 0.0  # for each committed token that the drafter has not read yet, before its next draft
    prompt: int = 0  # tokens that it has not read at the start
    steps: tuple[float, ...] = ()  # for each number of drafts that is verified, on top


@dataclass
class Outcome:
    """What came of a rule in a world."""

    milliseconds: list[float]  # since the start, after each round
    tokens: list[int]
    made: list[int]

    def rate(self, since: int = 0) -> float:
        """Tokens per millisecond behind the first `since` tokens."""
        first = next(at for at, count in enumerate(self.tokens) if count >= since) if since else -1
        began, had = (self.milliseconds[first], self.tokens[first]) if since else (0.0, 0)
        return (self.tokens[-1] - had) / (self.milliseconds[-1] - began)

    def drafts_a_round(self, since: int) -> float:
        return float(np.mean([made for made, tokens in zip(self.made, self.tokens, strict=True) if tokens > since]))


def live(world: World, length: DraftLength, *, room: int = 64, rounds: int = ROUNDS) -> Outcome:
    """Generate under a rule."""
    rng = np.random.default_rng(0)
    places = TOKENS + 64 * ROUNDS
    hard = rng.random(places) < 0.5
    luck = rng.random(places)
    late = rng.random(places)
    chance = np.zeros(places)
    for since, easy_chance, hard_chance in world.agreement:
        chance[since:] = np.where(hard, hard_chance, easy_chance)[since:]
    right = luck < chance
    confidence = np.where(hard, world.confidence[1], world.confidence[0])
    outcome = Outcome([], [], [])
    place, now, unread = 0, 0.0, world.prompt
    while place < TOKENS or len(outcome.made) < rounds:
        confidences: list[float] = []
        while length.another(confidences, room):
            confidences.append(float(confidence[place + len(confidences)]))
        made, sent = len(confidences), length.to_send(confidences)
        stood = int(np.argmin([*right[place : place + made], False]))
        gained = min(stood, sent) + 1
        agreed = min(stood, gained)
        exchange = world.exchange_ms + world.wider_ms * sent + (world.steps[sent] if world.steps else 0.0)
        if late[len(outcome.made)] < world.spikes:
            exchange += 9 * world.exchange_ms
        reading = world.reading_ms * unread if made else 0.0
        drafting = reading + world.draft_ms * made
        first = reading + world.draft_ms if made else 0.0
        length.learn(Round(confidences, agreed, min(agreed + 1, made, gained), sent, drafting, first, exchange))
        unread = gained if made else unread + gained
        place, now = place + gained, now + drafting + exchange
        outcome.tokens.append(place)
        outcome.milliseconds.append(now)
        outcome.made.append(made)
    return outcome


@cache
def _best_fixed(world: World, since: int = 0) -> float:
    return max(live(world, Fixed(k)).rate(since) for k in FIXED_LENGTHS)


def _steady(easy: float, hard: float) -> tuple[tuple[int, float, float], ...]:
    return ((0, easy, hard),)


LOOPBACK, LAN, FAR = (0.35, 1.8, 0.15), (5.0, 40.0, 1.0), (1.0, 80.0, 0.5)
DEAR_DRAFTS, DEAR_WIDTH = (4.0, 5.0, 1.0), (2.0, 10.0, 3.0)
COSTS = pytest.mark.parametrize(
    "costs",
    [LOOPBACK, LAN, FAR, DEAR_DRAFTS, DEAR_WIDTH],
    ids=["loopback", "lan", "far", "dear drafts", "dear width"],
)


@COSTS
@pytest.mark.parametrize("agreement", [0.2, 0.5, 0.8, 0.97])
def test_it_is_as_good_as_the_best_fixed_length_whatever_that_is(
    costs: tuple[float, float, float], agreement: float
) -> None:
    world = World(*costs, _steady(agreement, agreement))
    assert live(world, Adaptive()).rate() >= 0.95 * _best_fixed(world)


@COSTS
@pytest.mark.parametrize("agreement", [0.0, 0.1])
def test_a_bad_drafter_never_costs_more_than_a_few_percent(costs: tuple[float, float, float], agreement: float) -> None:
    world = World(*costs, _steady(agreement, agreement))
    assert live(world, Adaptive()).rate() >= 0.97 * live(world, Fixed(0)).rate()


@COSTS
@pytest.mark.parametrize(
    "confidence", [(0.9, 0.3), (0.99, 0.98), (0.2, 0.1), (0.3, 0.9)], ids=["honest", "vain", "shy", "wrong"]
)
def test_what_the_drafter_thinks_of_itself_is_taken_for_what_it_is_worth(
    costs: tuple[float, float, float], confidence: tuple[float, float]
) -> None:
    world = World(*costs, _steady(0.9, 0.3), confidence)
    assert live(world, Adaptive()).rate() >= 0.95 * _best_fixed(world)


@pytest.mark.parametrize("costs", [LOOPBACK, LAN], ids=["loopback", "lan"])
def test_honest_confidence_beats_every_fixed_length(costs: tuple[float, float, float]) -> None:
    world = World(*costs, _steady(0.97, 0.1), (0.97, 0.1))
    assert live(world, Adaptive()).rate() > 1.08 * _best_fixed(world)


@pytest.mark.parametrize("costs", [LOOPBACK, LAN, FAR], ids=["loopback", "lan", "far"])
@pytest.mark.parametrize("agreement", [0.5, 0.9])
def test_spikes_of_the_network_do_not_mislead_it(costs: tuple[float, float, float], agreement: float) -> None:
    world = World(*costs, _steady(agreement, agreement), spikes=0.05)
    assert live(world, Adaptive()).rate() >= 0.9 * _best_fixed(world)


@COSTS
def test_junk_ends_with_hardly_any_time_spent_on_drafts(costs: tuple[float, float, float]) -> None:
    drafts = live(World(*costs, _steady(0.0, 0.0)), Adaptive()).drafts_a_round(TOKENS // 2)
    assert drafts * costs[0] < 0.03 * costs[1]


@pytest.mark.parametrize("costs", [LOOPBACK, LAN, FAR, DEAR_WIDTH], ids=["loopback", "lan", "far", "dear width"])
def test_a_drafter_that_becomes_good_is_noticed(costs: tuple[float, float, float]) -> None:
    world = World(*costs, ((0, 0.0, 0.0), (200, 0.95, 0.95)))
    assert live(world, Adaptive()).rate(since=400) >= 0.8 * _best_fixed(world, since=400)


@COSTS
def test_a_drafter_that_becomes_junk_is_dropped(costs: tuple[float, float, float]) -> None:
    world = World(*costs, ((0, 0.95, 0.95), (200, 0.0, 0.0)))
    assert live(world, Adaptive()).rate(since=400) >= 0.95 * live(world, Fixed(0)).rate(since=400)


@pytest.mark.parametrize("make", [Adaptive, lambda: Fixed(9)], ids=["adaptive", "fixed"])
@pytest.mark.parametrize("room", [0, 1, 3])
def test_there_is_never_a_draft_more_than_there_is_room(make: Callable[[], DraftLength], room: int) -> None:
    outcome = live(World(*FAR, _steady(0.97, 0.97)), make(), room=room)
    assert max(outcome.made) == room


@pytest.mark.parametrize("make", [Adaptive, lambda: Fixed(5)], ids=["adaptive", "fixed"])
def test_no_more_is_sent_than_was_made(make: Callable[[], DraftLength]) -> None:
    length = make()
    for count in range(20):
        assert 0 <= length.to_send([0.01] * count) <= count


def test_a_fixed_length_is_kept_in_every_round() -> None:
    for k in (0, 1, 7):
        assert set(live(World(*LAN, _steady(0.3, 0.3)), Fixed(k)).made) == {k}


def test_a_fixed_length_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative, got -1"):
        Fixed(-1)


def test_instant_answers_and_free_drafts_break_nothing() -> None:
    for costs in ((0.0, 1.0, 0.0), (0.0, 1e-9, 0.0), (1e6, 1e-9, 0.0)):
        for agreement in (0.0, 1.0):
            assert live(World(*costs, _steady(agreement, agreement)), Adaptive()).tokens[-1] >= 100


STEPS = (
    30.0,
    35.0,
    56.0,
    58.0,
    79.0,
    83.0,
    103.0,
    109.0,
    130.0,
    140.0,
    150.0,
    161.0,
    172.0,
    184.0,
    196.0,
    208.0,
    220.0,
)


@pytest.mark.parametrize("factor", [1.0, 1.3, 0.7])
@pytest.mark.parametrize("agreement", [0.3, 0.6, 0.9])
def test_what_the_verifier_says_of_its_passes_helps(agreement: float, factor: float) -> None:
    """Also where its passes now take longer or shorter than it says, as long as their proportions hold."""
    world = World(1.0, 0.0, 0.0, _steady(agreement, agreement), steps=STEPS)
    told = live(world, Adaptive([factor * ms for ms in STEPS]))
    assert told.rate() >= 0.95 * _best_fixed(world)
    assert told.rate() >= 0.98 * live(world, Adaptive()).rate()


@COSTS
def test_nonsense_about_passes_is_seen_through(costs: tuple[float, float, float]) -> None:
    world = World(*costs, _steady(0.7, 0.7))
    for nonsense in ([500.0, 1.0, 700.0] * 6, [1.0] * 17, [1.0, 1000.0], [3.0], [0.0] * 17):
        assert live(world, Adaptive(nonsense)).rate() >= 0.85 * _best_fixed(world)


@pytest.mark.parametrize("prompt", [0, 100, 1000, 8000])
def test_a_long_prompt_does_not_make_drafts_look_dear(prompt: int) -> None:
    """A drafter reads 300 tokens a second and drafts one in 8 ms, for a verifier of 60 ms a step."""
    world = World(8.0, 60.0, 3.0, _steady(0.8, 0.8), reading_ms=3.3, prompt=prompt)
    told, best = live(world, Adaptive()), _best_fixed(replace(world, prompt=0))
    assert told.tokens[-1] / (told.milliseconds[-1] - 3.3 * prompt) >= 0.93 * best


def test_reading_up_after_a_silence_does_not_make_drafts_look_dear() -> None:
    """For 400 tokens nothing stands; after that nearly all does, and drafting comes back."""
    world = World(8.0, 60.0, 3.0, ((0, 0.02, 0.02), (400, 0.9, 0.9)), reading_ms=3.3, prompt=100)
    told = live(world, Adaptive(), rounds=600)
    assert told.rate(since=500) >= 0.85 * _best_fixed(world, since=500)


def test_other_lengths_are_not_judged_by_slower_days() -> None:
    """An exchange takes 100 ms and 10 a draft for a while, then a fifth of both."""
    curve = Curve()
    for _ in range(5):
        for count in (2, 5, 8):
            curve.learn(count, 100.0 + 10.0 * count)
    for _ in range(100):
        curve.learn(2, 24.0)
    assert curve.at(5) < 100.0


def test_a_hiccup_is_no_price() -> None:
    curve = Curve()
    for count in (1, 2, 3, 4) * 5:
        curve.learn(count, 80.0)
    curve.learn(5, 8000.0)
    assert curve.at(5) < 200.0
