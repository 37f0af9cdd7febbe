"""Policies: each chooses as it says, and two choices balance."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.balancing.candidate import queue_time
from specpair.balancing.policies import POLICIES, Hash, Jsq2, LeastQueueTime, RoundRobin, Wjsq2
from specpair.balancing.rendezvous import ordered
from tests.specpair.balancing.nodes import Node

ORDERS = st.lists(
    st.builds(
        Node, st.text(max_size=4), st.floats(0.1, 10.0), st.integers(0, 50), st.floats(0.0, 10.0, allow_nan=False)
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda each: each.name,
)


@pytest.mark.parametrize("name", POLICIES)
@given(order=ORDERS)
def test_a_policy_chooses_one_of_those_that_it_was_given(name: str, order: list[Node]) -> None:
    assert POLICIES[name]().choose(order) in order


@given(ORDERS)
def test_what_each_minimises(order: list[Node]) -> None:
    assert Hash().choose(order) is order[0]
    assert Jsq2().choose(order).queue == min(each.queue for each in order[:2])
    chosen = Wjsq2().choose(order)
    assert all((chosen.queue + 1) / chosen.weight <= (each.queue + 1) / each.weight for each in order[:2])
    soonest = min(each.queue_time for each in order)
    chosen = LeastQueueTime().choose(order)
    assert chosen.queue_time <= 1.1 * soonest
    assert all(chosen.queue / chosen.weight <= each.queue / each.weight for each in order if each.queue_time == soonest)


@given(ORDERS, st.integers(1, 5), st.randoms())
def test_round_robin_gives_each_its_turn(order: list[Node], rounds: int, chance: object) -> None:
    policy, counts = RoundRobin(), Counter[str]()
    for _ in range(rounds * len(order)):
        chance.shuffle(order)  # type: ignore[attr-defined]
        counts[policy.choose(order).name] += 1
    assert set(counts.values()) == {rounds}


def loads(name: str, weights: list[float], texts: int) -> list[int]:
    """The queues after so many texts have come and none has ended."""
    policy = POLICIES[name]()
    nodes = [Node(str(number), weight) for number, weight in enumerate(weights)]
    for number in range(texts):
        chosen = policy.choose(ordered(f"text {number}", nodes))
        grown = chosen.queue + 1
        nodes = [
            replace(each, queue=grown, queue_time=grown / each.weight) if each is chosen else each for each in nodes
        ]
    return [each.queue for each in nodes]


def test_two_choices_balance_far_better_than_the_hash_alone() -> None:
    def spread(name: str) -> int:
        found = loads(name, [1.0] * 10, 1000)
        return max(found) - min(found)

    assert spread("round_robin") == 0
    assert spread("jsq2") <= 4
    assert spread("hash") > 3 * spread("jsq2")


@pytest.mark.parametrize("name", ["wjsq2", "least_queue_time"])
def test_a_heavier_node_gets_more(name: str) -> None:
    light, middle, heavy = loads(name, [1.0, 2.0, 4.0], 700)
    assert abs(light - 100) <= 10 and abs(middle - 200) <= 20 and abs(heavy - 400) <= 20


def test_queue_time() -> None:
    assert queue_time(0.01, [], 8, 5, 5) == 0.01
    assert queue_time(0.0, [0.02, 0.03], 8, 0, 0) == 0.02
    assert queue_time(0.0, [0.02, 0.03], 8, 1, 0) == 0.03
    assert queue_time(0.0, [0.02, 0.03], 8, 3, 0) == 0.06, "beyond what was measured, as many passes as it takes"
    assert queue_time(0.0, [0.02, 0.03], 1, 3, 0) == 0.08, "with one slot, the texts take turns"
    assert queue_time(0.01, [0.02, 0.03], 8, 1, 2) == pytest.approx(0.01 + 0.03 * 2)
