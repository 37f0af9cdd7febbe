"""Policies of the draft length, alone and followed by the real controller."""

import random
from collections.abc import Callable
from statistics import mean, median
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.costs.linear import LinearCost
from lab.simulator.drafting import policies
from lab.simulator.drafting.drafter import EngineDrafter
from lab.simulator.drafting.engine import DraftEngine
from lab.simulator.drafting.lengths import LengthPolicy, PolicyLength
from lab.simulator.fleet.text import Agreeing, Choices, RuleTarget, Text
from lab.simulator.virtual.agreement import constant
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.world import World
from specpair.drafters.run.events import Committed
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.policy.timing import LatencyModel

TARGET = LinearCost(30.0, 0.3, 0.1)
DRAFT = LinearCost(5.0, 0.5, 0.1)


class Judged(NamedTuple):
    judged: int
    accepted: int


def rounds(
    length: LengthPolicy | int, mechanisms: Mechanisms = LOCKSTEP, chance: float = 0.8, rtt: float = 0.05
) -> list[Judged]:
    """What was judged of a text of 300 tokens, round by round."""
    found: list[JudgedRound] = []
    text = Text([*range(20)], lambda what: random.Random(4))
    world = World(RuleTarget(slots=1, context_length=4096), lambda plan: TARGET.of(plan.batch))

    def take(committed: Committed) -> None:
        found.extend(committed.rounds)

    pair = EngineDrafter(
        world,
        text.tokens(0, text.prompt_len),
        Agreeing(Choices(text, constant(chance))),
        DraftEngine(world, DRAFT),
        0,
        take,
        max_tokens=300,
        length=length if isinstance(length, int) else PolicyLength(length, 64),
        mechanisms=mechanisms,
        network=Network(rtt),
    )
    pair.start()
    world.run(done=lambda: pair.finished)
    assert pair.session.tokens == text.tokens(0, 320)
    return [Judged(each.judged, each.accepted) for each in found if each.judged]


POLICIES: list[Callable[[], LengthPolicy]] = [
    policies.Constant,
    policies.SpecDecPlusPlus,
    policies.AcceptanceBackoff,
    policies.LatencyBackoff,
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("mechanisms", [LOCKSTEP, Mechanisms()])
def test_each_policy_writes_the_text_of_the_target(policy: Callable[[], LengthPolicy], mechanisms: Mechanisms) -> None:
    found = rounds(policy(), mechanisms)
    assert found and all(1 <= each.judged <= 16 for each in found)
    assert rounds(policy(), mechanisms) == found


def test_a_constant_policy_is_a_fixed_length() -> None:
    assert rounds(policies.Constant(3)) == rounds(3)
    assert {each.judged for each in rounds(3)[:-1]} == {3}


def test_specdec_stops_where_a_rejection_is_likely() -> None:
    """Where all draft tokens are accepted it drafts its most; where few are, one or two."""
    sure, unsure = (
        mean(each.judged for each in rounds(policies.SpecDecPlusPlus(0.6), chance=chance)[5:-2])
        for chance in (1.0, 0.3)
    )
    assert sure > 14 and unsure < 3
    patient, hasty = (
        mean(each.judged for each in rounds(policies.SpecDecPlusPlus(threshold))) for threshold in (0.9, 0.2)
    )
    assert patient > 2 * hasty


@given(st.lists(st.booleans(), max_size=60))
def test_acceptance_backoff_grows_and_shrinks_within_its_bounds(wholes: list[bool]) -> None:
    policy, times = policies.AcceptanceBackoff(5, 2, 9), LatencyModel()
    for whole in wholes:
        before = policy.most(times)
        policy.judged(before, before if whole else before - 1)
        assert policy.most(times) == (min(before + 2, 9) if whole else max(before - 1, 2))
        policy.judged(0, 0)


def test_latency_backoff_drafts_longer_over_a_slow_link() -> None:
    near, far = ([each.judged for each in rounds(policies.LatencyBackoff(), rtt=rtt)[3:-1]] for rtt in (0.0, 0.1))
    assert set(near) <= {2, 3, 4} and median(far) > 8
