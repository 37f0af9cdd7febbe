"""The order of nodes that a key puts them in, and policies: each chooses as it says."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.balancing import (
    KNOWN,
    Candidate,
    Jiq,
    LeastQueueTime,
    NewText,
    Policy,
    PrefixAware,
    RoundRobin,
    SloAware,
    check_policy,
    ordered,
    policy_of,
    queue_time,
)

C = TypeVar("C", bound=Candidate)


@dataclass(frozen=True)
class Node:
    name: str
    weight: float = 1.0
    queue: int = 0
    queue_time: float = 0.0
    work: float = 0.0
    deadline: float = math.inf


class Last(Policy):
    """A policy of a user's own."""

    def choose(self, order: Sequence[C], text: NewText) -> C:
        return order[-1]


class Unmade(Last):
    """One that cannot be made without arguments."""

    def __init__(self, missing: int) -> None:
        self.missing = missing


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


def test_keys_are_spread_by_weight() -> None:
    weights = (1.0, 1.0, 2.0, 4.0)
    known = nodes(*weights)
    counts = Counter(ordered(key, known)[0].name for key in KEYS)
    for node in known:
        share = node.weight / sum(weights)
        deviation = math.sqrt(len(KEYS) * share * (1 - share))
        assert abs(counts[node.name] - len(KEYS) * share) < 5 * deviation


def test_the_order_of_a_key_stays_from_version_to_version() -> None:
    """Else routers of two versions would send one session to two nodes."""
    assert [each.name[-6] for each in ordered("a" * 32, nodes(1.0, 2.0, 1.0))] == ["1", "0", "2"]


TEXT = NewText("text")
TIMES = st.floats(0.0, 10.0, allow_nan=False)
ORDERS = st.lists(
    st.builds(
        Node,
        st.text(min_size=1, max_size=4),
        st.floats(0.1, 10.0),
        st.integers(0, 50),
        TIMES,
        st.floats(0.0, 1e6),
        st.floats(0.1, 10.0),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda each: each.name,
)


TEXTS = st.builds(
    NewText,
    st.text(max_size=4),
    st.lists(st.text(min_size=1, max_size=2), max_size=3).map(tuple),
    st.floats(0.1, 1e4),
    st.floats(0.01, 10.0),
)


@pytest.mark.parametrize("name", KNOWN)
@given(texts=st.lists(st.tuples(ORDERS, TEXTS), max_size=4))
def test_a_policy_chooses_one_of_those_that_it_was_given_and_the_same_each_time(
    name: str, texts: list[tuple[list[Node], NewText]]
) -> None:
    one, other = KNOWN[name](), KNOWN[name]()
    for order, text in texts:
        chosen = one.choose(order, text)
        assert any(chosen is each for each in order)
        assert other.choose(order, text) is chosen


@given(ORDERS)
def test_what_each_minimises(order: list[Node]) -> None:
    assert KNOWN["hash"]().choose(order, TEXT) is order[0]
    assert KNOWN["jsq2"]().choose(order, TEXT).queue == min(each.queue for each in order[:2])
    assert KNOWN["jsq"]().choose(order, TEXT).queue == min(each.queue for each in order)
    chosen = KNOWN["wjsq2"]().choose(order, TEXT)
    assert all((chosen.queue + 1) / chosen.weight <= (each.queue + 1) / each.weight for each in order[:2])
    soonest = min(each.queue_time for each in order)
    chosen = LeastQueueTime().choose(order, TEXT)
    assert chosen.queue_time <= 1.1 * soonest
    assert all(chosen.queue / chosen.weight <= each.queue / each.weight for each in order if each.queue_time == soonest)
    chosen = KNOWN["semi_clairvoyant"]().choose(order, TEXT)
    assert all((chosen.work + 1) / chosen.weight <= (each.work + 1) / each.weight for each in order)


@given(ORDERS, st.integers(1, 5), st.randoms())
def test_round_robin_gives_each_its_turn(order: list[Node], rounds: int, chance: object) -> None:
    policy, counts = RoundRobin(), Counter[str]()
    for _ in range(rounds * len(order)):
        chance.shuffle(order)  # type: ignore[attr-defined]
        counts[policy.choose(order, TEXT).name] += 1
    assert set(counts.values()) == {rounds}


def test_join_idle_queue_takes_the_longest_idle_first() -> None:
    policy = Jiq()
    a, b, c = (Node(each, queue=1) for each in "abc")
    idle_b, idle_c = replace(b, queue=0), replace(c, queue=0)
    assert policy.choose([a, b, idle_c], TEXT) is idle_c
    assert policy.choose([a, b, c], TEXT) is a, "none is idle: the first of the order"
    assert policy.choose([a, idle_c, idle_b], TEXT) is idle_c
    assert policy.choose([a, idle_c, idle_b], TEXT) is idle_b, "it has been seen idle before c was again"
    policy.choose([a, idle_b, idle_c], TEXT)
    assert policy.choose([a, b, c], TEXT) is a, "who is busy again is not idle any more"


def test_a_text_goes_where_its_longest_prefix_is_unless_that_node_is_overloaded() -> None:
    policy = PrefixAware()
    a, b = Node("a"), Node("b")
    assert policy.choose([a, b], NewText("1", ("system",))) is a
    assert policy.choose([b, a], NewText("2", ("turn 1", "system"))) is a
    assert policy.choose([b, a], NewText("3", ("other",))) is b
    assert policy.choose([b, a], NewText("4", ("turn 2", "turn 1", "other"))) is a, "the longest prefix says where"
    busy = replace(a, queue=2)
    assert policy.choose([b, busy], NewText("5", ("turn 1",))) is b, "three texts where the other has one"
    assert policy.choose([busy, b], NewText("6", ("turn 1",))) is b, "it is there now, too"
    assert policy.choose([a], NewText("7", ("turn 1",))) is a, "the node that had it is not there"
    light, heavy = Node("light", 1.0, 3), Node("heavy", 4.0, 7)
    policy.choose([heavy], NewText("8", ("heavy",)))
    assert policy.choose([light, heavy], NewText("9", ("heavy",))) is heavy, "for its weight it has no more"


def test_deadlines_of_the_text_and_of_those_there_are_kept() -> None:
    fast_but_strict = Node("a", queue_time=0.05, deadline=0.06)
    slow = Node("b", queue_time=0.2)
    policy = SloAware()
    assert policy.choose([slow, fast_but_strict], NewText(deadline=1.0)) is slow, "it leaves the strict ones alone"
    assert policy.choose([slow, fast_but_strict], NewText(deadline=0.1)) is fast_but_strict
    lenient = replace(fast_but_strict, deadline=2.0)
    assert policy.choose([slow, lenient], NewText(deadline=1.0)) is lenient
    unlimited = Node("c", queue_time=0.05)
    assert policy.choose([slow, unlimited], NewText()) is unlimited, "without deadlines: the least queue time"


def test_a_policy_by_its_name_or_by_where_it_is() -> None:
    assert policy_of("jsq") is KNOWN["jsq"]
    assert policy_of(f"{Last.__module__}:Last") is Last
    check_policy(f"{Last.__module__}:Last")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jsq3", "no policy 'jsq3': choose one of hash, random, "),
        ("tests:", "no policy 'tests:'"),
        ("no_such:Mine", "no_such of the policy no_such:Mine cannot be imported: ModuleNotFoundError"),
        (f"{Last.__module__}:Mine", f"has no Mine, which the policy {Last.__module__}:Mine names"),
        (f"{Last.__module__}:Node", "is no policy: a class that inherits from gateway.balancing.Policy"),
        (f"{Last.__module__}:Unmade", "cannot be made: TypeError"),
    ],
)
def test_what_is_no_policy_is_named(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        check_policy(name)


def test_queue_time() -> None:
    assert queue_time(0.01, [], 8, 5, 5) == 0.01
    assert queue_time(0.0, [0.02, 0.03], 8, 0, 0) == 0.02
    assert queue_time(0.0, [0.02, 0.03], 8, 1, 0) == 0.03
    assert queue_time(0.0, [0.02, 0.03], 8, 3, 0) == 0.06, "beyond what was measured, as many passes as it takes"
    assert queue_time(0.0, [0.02, 0.03], 1, 3, 0) == 0.08, "with one slot, the texts take turns"
    assert queue_time(0.01, [0.02, 0.03], 8, 1, 2) == pytest.approx(0.01 + 0.03 * 2)
