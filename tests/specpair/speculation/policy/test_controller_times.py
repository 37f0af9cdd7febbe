"""The mechanisms pay where they should, in virtual time: the real decisions of both ends with assumed costs.

All times are seconds. The factors are well below today's results, but above those of a mechanism that has stopped
working.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from specpair.speculation.drafting.acceptance_model import AcceptanceModel
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.policy.timing import LatencyModel
from tests.specpair.speculation.policy.virtual_pair import Knowing, run

pytestmark = pytest.mark.slow

ALL = Mechanisms()
WAITING = replace(ALL, self_continue=False)  # the verifier waits for drafts
OVERLAP = replace(WAITING, in_flight=1, after_recovered=False)


def _rate(right: float, mechanisms: Mechanisms, **world: Any) -> float:
    """Tokens per second."""
    return run(Knowing(right, 0.4, 4), mechanisms, **world).course.tokens_per_second


@pytest.mark.parametrize("step", [0.01, 0.025, 0.05])
@pytest.mark.parametrize("draft", [0.002, 0.01, 0.04])
@pytest.mark.parametrize("rtt", [0.05, 0.1])
def test_useless_drafter_costs_nothing_on_a_long_link(rtt: float, draft: float, step: float) -> None:
    target_alone = 1.0 / step
    assert _rate(0.0, ALL, rtt=rtt, step=step, wider=0.0002, draft=draft) >= 0.98 * target_alone


@pytest.mark.parametrize("right", [0.6, 0.9, 0.97])
@pytest.mark.parametrize("rtt", [0.001, 0.03])
def test_overlap_is_never_worse_than_lockstep(rtt: float, right: float) -> None:
    world: dict[str, Any] = {"rtt": rtt, "step": 0.04, "wider": 0.0005, "draft": 0.006}
    lockstep = _rate(right, LOCKSTEP, **world)
    for mechanisms in (OVERLAP, WAITING, ALL):
        assert _rate(right, mechanisms, **world) > 0.98 * lockstep


@pytest.mark.parametrize(("right", "factor"), [(0.97, 1.25), (0.9, 1.08)])
def test_several_drafts_in_flight_fill_a_long_link(right: float, factor: float) -> None:
    world: dict[str, Any] = {"rtt": 0.1, "step": 0.02, "wider": 0.0003, "draft": 0.002}
    one, several = (_rate(right, replace(WAITING, in_flight=count), **world) for count in (1, 6))
    assert several > factor * one


@pytest.mark.parametrize(("second", "share", "factor"), [(0.5, 0.4, 1.1), (0.9, 0.75, 1.18)])
def test_drafts_behind_recovered_tokens_are_often_ready_and_pay(second: float, share: float, factor: float) -> None:
    world: dict[str, Any] = {"rtt": 0.001, "step": 0.025, "wider": 0.0002, "draft": 0.003}
    without = run(Knowing(0.8, second, 6), replace(WAITING, after_recovered=False), **world)
    next_draft_ready = run(Knowing(0.8, second, 6), WAITING, **world)
    assert without.controller is not None and next_draft_ready.controller is not None
    assert (
        without.controller.text.next_draft_ready == 0
        and without.controller.text.mispredicted == next_draft_ready.controller.text.mispredicted > 50
    )
    assert next_draft_ready.controller.text.next_draft_ready > share * next_draft_ready.controller.text.mispredicted
    assert next_draft_ready.course.tokens_per_second > factor * without.course.tokens_per_second


@pytest.mark.parametrize("right", [0.5, 0.9])
@pytest.mark.parametrize("wider", [0.0005, 0.01])
@pytest.mark.parametrize(("uneven", "said"), [(0.2, 1.0), (0.0, 1.3), (0.1, 0.7), (0.2, 1.5)])
def test_drafts_are_in_time_although_passes_differ_from_estimates(
    uneven: float, said: float, wider: float, right: float
) -> None:
    """A draft timed for the end of a step that ended earlier would find the next step begun, time after time."""
    world: dict[str, Any] = {"rtt": 0.001, "step": 0.03, "wider": wider, "draft": 0.001, "uneven": uneven, "said": said}
    assert _rate(right, ALL, **world) > 0.93 * _rate(right, LOCKSTEP, **world)


def _steady(chance: float) -> tuple[tuple[int, float], ...]:
    return ((0, chance),)


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
@pytest.mark.parametrize("agreement", [0.2, 0.5, 0.8, 0.97])
def test_automatic_length_is_about_as_good_as_the_best_fixed_one(costs: Costs, agreement: float) -> None:
    world = World(*costs, _steady(agreement))
    assert generate(world).rate() >= 0.95 * best_fixed(world)


@COSTS
@pytest.mark.parametrize("agreement", [0.0, 0.1])
def test_bad_drafter_costs_a_few_percent_at_most(costs: Costs, agreement: float) -> None:
    world = World(*costs, _steady(agreement))
    assert generate(world).rate() >= 0.97 * fixed(world, 0).rate()


@pytest.mark.parametrize("costs", [LOOPBACK, LAN, FAR, SLOW_WIDTH], ids=["loopback", "lan", "far", "slow width"])
def test_drafter_that_becomes_good_is_used_again(costs: Costs) -> None:
    world = World(*costs, ((0, 0.0), (200, 0.95)))
    assert generate(world).rate(since=400) >= 0.8 * best_fixed(world, since=400)


@COSTS
def test_drafter_that_becomes_useless_is_dropped(costs: Costs) -> None:
    world = World(*costs, ((0, 0.95), (200, 0.0)))
    assert generate(world).rate(since=400) >= 0.95 * fixed(world, 0).rate(since=400)


@pytest.mark.parametrize("agreement", [0.0, 1.0])
@pytest.mark.parametrize(
    "costs", [(0.0, 0.0, 0.001, 0.0), (0.0, 0.0, 1e-12, 0.0), (1e3, 0.0, 1e-12, 0.0), (0.0, 0.0, 0.0, 0.0)], ids=str
)
def test_generation_ends_under_extreme_costs(costs: Costs, agreement: float) -> None:
    assert generate(World(*costs, _steady(agreement))).tokens[-1] >= TOKENS


WRONG_PASS_TIMES = pytest.mark.parametrize(
    "wrong",
    [[0.5, 0.001, 0.7] * 6, [0.001] * 17, [0.001, 1.0], [0.003], [0.0] * 17],
    ids=lambda times: str(times[:3]),
)


@COSTS
@WRONG_PASS_TIMES
def test_wrong_reported_pass_times_are_corrected(costs: Costs, wrong: list[float]) -> None:
    world = World(*costs, _steady(0.7))
    assert generate(world, wrong).rate() >= 0.85 * best_fixed(world)


@pytest.mark.parametrize("prompt", [0, 100, 1000, 8000])
def test_reading_a_long_prompt_does_not_raise_the_draft_time(prompt: int) -> None:
    """The drafter reads 300 tokens a second and drafts one in 8 ms; a round trip with a pass takes 60 ms."""
    world = World(0.008, 0.01, 0.05, 0.003, _steady(0.8), reading=0.0033, prompt=prompt)
    outcome, best = generate(world), best_fixed(replace(world, prompt=0))
    assert outcome.tokens[-1] / (outcome.seconds[-1] - 0.0033 * prompt) >= 0.93 * best


TOKENS, ROUNDS = 600, 200  # a run ends when both are reached
FIXED_LENGTHS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
RIGHT, WRONG = 1, 2


@dataclass(frozen=True)
class World:
    """Costs in seconds, and a drafter with a chance of being right at each position, of which it is half sure.

    `agreement`: pieces of (from this token on, chance).
    """

    draft: float
    link: float  # round trip
    step: float  # of the verifier, without draft tokens
    wider: float  # for each draft token that is verified
    agreement: tuple[tuple[int, float], ...]
    reading: float = 0.0  # for each committed token that the drafter has to read before its next draft token
    prompt: int = 0  # tokens that the drafter has to read at the start

    def verify(self, drafts: int) -> float:
        return self.step + self.wider * drafts


@dataclass
class Outcome:
    """The rounds of one run in a world."""

    seconds: list[float]  # since the start, after each round
    tokens: list[int]

    def rate(self, since: int = 0) -> float:
        """Tokens per second after the first `since` tokens."""
        first = next(at for at, count in enumerate(self.tokens) if count >= since) if since else -1
        began, had = (self.seconds[first], self.tokens[first]) if since else (0.0, 0)
        return (self.tokens[-1] - had) / (self.seconds[-1] - began)


@cache
def right_at(agreement: tuple[tuple[int, float], ...]) -> list[bool]:
    """A text, fixed beforehand: at each position, whether the drafter is right."""
    positions = TOKENS + 64 * ROUNDS
    chance = np.zeros(positions)
    for since, each in agreement:
        chance[since:] = each
    found: list[bool] = (np.random.default_rng(0).random(positions) < chance).tolist()
    return found


def generate(world: World, pass_times: Sequence[float] = ()) -> Outcome:
    """Generate with an automatic draft length. `pass_times`: as for `LatencyModel`."""
    right = right_at(world.agreement)
    times = LatencyModel(pass_times)
    times.exchanged(world.link, 0.0, 0.0)  # as the handshake does
    controller = SpeculationController(
        [0], len(right), frozenset(), Estimates(times, AcceptanceModel()), DraftLength(None, 64), mechanisms=LOCKSTEP
    )
    outcome = Outcome([], [])
    now, unread, made = 0.0, world.prompt, 0
    while len(controller.known) <= TOKENS or len(outcome.tokens) < ROUNDS:
        place = len(controller.known) - 1
        in_flight_draft = controller.next_draft(now)
        if in_flight_draft is None:
            step = controller.next_step(now)
            assert step is not None, "neither a draft step nor a request: the run would never end"
            (tail,) = step.tails
            now += world.draft + world.reading * unread
            controller.drafted([Proposal(RIGHT if right[place + len(tail)] else WRONG, 0.5)], 1 + unread, now)
            unread, made = 0, made + 1
            continue
        sent = len(in_flight_draft.draft)
        accepted = [*right[place : place + sent], False].index(False)
        now += world.link + world.verify(sent)
        controller.answered(in_flight_draft, sent, 0.0, world.verify(sent), now)
        controller.committed(in_flight_draft.draft.position, [RIGHT] * (accepted + 1), False, now)
        controller.reflect()
        unread += 0 if made else accepted + 1
        outcome.tokens.append(place + accepted + 1)
        outcome.seconds.append(now)
        made = 0
    return outcome


def fixed(world: World, length: int) -> Outcome:
    """The same run for a fixed length, computed by sums alone, without reading times."""
    right = right_at(world.agreement)
    outcome = Outcome([], [])
    place, now = 0, 0.0
    while place < TOKENS or len(outcome.tokens) < ROUNDS:
        accepted = [*right[place : place + length], False].index(False)
        now += length * world.draft + world.link + world.verify(length)
        place += accepted + 1
        outcome.tokens.append(place)
        outcome.seconds.append(now)
    return outcome


@cache
def best_fixed(world: World, since: int = 0) -> float:
    """The rate of the best fixed draft length."""
    return max(fixed(world, length).rate(since) for length in FIXED_LENGTHS)
