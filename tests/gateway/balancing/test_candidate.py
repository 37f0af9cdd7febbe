"""Rendezvous hashing: keys are spread by weight, and move only with the node that leaves or joins."""

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.balancing import ordered
from tests.gateway.balancing.nodes import Node

KEYS = [f"{number:032x}" for number in range(4000)]
NAMES = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6, unique=True)
KEY = st.text(max_size=40)


def nodes(*weights: float) -> list[Node]:
    return [Node(f"http://10.0.0.{number}:8000", weight) for number, weight in enumerate(weights)]


@given(KEY, NAMES, st.randoms())
def test_the_order_depends_on_the_key_and_the_nodes_alone(key: str, names: list[str], chance: object) -> None:
    given_nodes = [Node(name) for name in names]
    order = ordered(key, given_nodes)
    shuffled = given_nodes[:]
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert ordered(key, shuffled) == order
    assert sorted(order, key=lambda each: each.name) == sorted(given_nodes, key=lambda each: each.name)


@given(KEY, NAMES, st.data())
def test_a_node_that_leaves_moves_no_other(key: str, names: list[str], data: st.DataObject) -> None:
    order = ordered(key, [Node(name) for name in names])
    gone = data.draw(st.sampled_from(order))
    left = [each for each in order if each is not gone]
    assert ordered(key, left) == left


@given(KEY, NAMES, st.floats(1.0, 10.0))
def test_a_greater_weight_only_moves_its_node_forwards(key: str, names: list[str], factor: float) -> None:
    before = ordered(key, [Node(name) for name in names])
    heavier = [Node(name, factor if name == names[0] else 1.0) for name in names]
    after = ordered(key, heavier)
    position = [each.name for each in before].index(names[0])
    assert [each.name for each in after].index(names[0]) <= position
    assert [each.name for each in after if each.name != names[0]] == [e.name for e in before if e.name != names[0]]


def test_keys_are_spread_by_weight() -> None:
    weights = (1.0, 1.0, 2.0, 4.0)
    known = nodes(*weights)
    counts = Counter(ordered(key, known)[0].name for key in KEYS)
    for node in known:
        share = node.weight / sum(weights)
        deviation = math.sqrt(len(KEYS) * share * (1 - share))
        assert abs(counts[node.name] - len(KEYS) * share) < 5 * deviation


def test_a_node_that_joins_takes_its_share_and_moves_no_other_key() -> None:
    known = nodes(1.0, 1.0, 1.0)
    joined = nodes(1.0, 1.0, 1.0, 1.0)
    moved = 0
    for key in KEYS:
        before, after = ordered(key, known)[0], ordered(key, joined)[0]
        if after != before:
            assert after == joined[-1]
            moved += 1
    assert abs(moved - len(KEYS) / 4) < 5 * math.sqrt(len(KEYS) * 3 / 16)


def test_the_order_of_a_key_stays_from_version_to_version() -> None:
    """Else routers of two versions would send one session to two nodes."""
    assert [each.name[-6] for each in ordered("a" * 32, nodes(1.0, 2.0, 1.0))] == ["1", "0", "2"]
