"""Static trees: cases computed by hand, and a chain is a tree."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.simulator.known_outputs.static_policies import MeasuredLatencies, Policy, Trace, policies, replay
from lab.simulator.known_outputs.static_trees import TreeDrafts, likeliest, shares, tree_policies, tree_seconds, trees

TREE = ((0,), (1,), (0, 0), (0, 1), (1, 0))


def trace(ranks: list[int]) -> Trace:
    return Trace([rank == 0 for rank in ranks])


def test_likeliest_tree_has_each_token_behind_its_parent() -> None:
    assert likeliest([0.5, 0.3, 0.1], 4, 2) == ((0,), (1,), (0, 0), (0, 1))  # 0.15, before (1, 0) of the same chance
    assert likeliest([0.5, 0.3, 0.1], 4, 1) == ((0,), (1,), (2,))
    assert likeliest([0.9, 0.01], 3, 3) == ((0,), (0, 0), (0, 0, 0))
    assert likeliest([1.0, 0.0], 3, 2) == ((0,), (0, 0))
    for tree in trees([0.6, 0.2, 0.1]):
        assert all(path[:-1] in ((), *tree[:at]) for at, path in enumerate(tree))


def test_shares_are_those_of_all_tokens() -> None:
    assert shares([[0, 0, 1, 6], [0, 2, 6, 6]], 3) == [0.375, 0.125, 0.125]


def test_what_is_left_of_a_tree_follows_the_text() -> None:
    drafts = TreeDrafts(TREE, [9, 0, 1, 1, 1, 0])
    assert drafts.depth == 2 and drafts.rows == [1, 2]
    assert drafts.left(1, 2) == [5, 2, 0]  # 0 and 1 stand in it
    assert drafts.left(1, 1) == [2, 0]
    assert drafts.left(2, 2) == [5, 1]  # 1 does, and 1 behind it does not
    assert TreeDrafts(TREE, [9, 7, 0]).left(1, 2) == [5]


def test_lockstep_with_a_tree_equals_that_computed_by_hand() -> None:
    ranks = [9, 0, 1, 0, 9, 1, 0, 0]
    times = MeasuredLatencies(2.0, lambda count: 10.0 + count, 8.0)
    steps: Callable[[int], float] = {1: 2.0, 2: 3.0}.__getitem__
    [(_, seconds)] = [
        each for each in tree_seconds(trace(ranks), [TreeDrafts(TREE, ranks)], times, steps) if "lockstep" in each[0]
    ]
    # Both tokens of a path and one more; none and one; the rest: 5 s of steps, 8 s of link, 15 s of a pass each time.
    assert seconds == pytest.approx(3 * 28.0)


def test_policies_with_trees_are_those_with_few_drafts_in_flight() -> None:
    names = {each.name for each in tree_policies(4)}
    assert {"lockstep", "overlapped, topped up", "2 in flight", "self-continued, eager"} <= names
    assert "3 in flight" not in names and names <= {each.name for each in policies(4)}


ranks_of_text = st.lists(st.integers(0, 3), min_size=1, max_size=40).map(lambda ranks: [9, *ranks])
seconds = st.floats(0.0, 50.0)


@settings(max_examples=60)
@given(ranks_of_text, st.integers(1, 16), seconds, seconds)
def test_a_tree_without_branches_is_a_chain(ranks: list[int], depth: int, draft: float, rtt: float) -> None:
    times = MeasuredLatencies(draft, lambda count: 10.0 + count, rtt)
    chain = TreeDrafts(tuple((0,) * length for length in range(1, depth + 1)), ranks)
    found = dict(tree_seconds(trace(ranks), [chain], times, lambda _: draft))
    for policy in tree_policies(depth):
        assert found[f"{policy.name}, tree 0"] == replay(trace(ranks), times, policy)[-1][0], policy


@settings(max_examples=60)
@given(ranks_of_text, seconds, seconds)
def test_branches_that_cost_nothing_never_slow_lockstep(ranks: list[int], draft: float, rtt: float) -> None:
    times, tree = MeasuredLatencies(draft, lambda _: 10.0, rtt), likeliest([0.5, 0.3, 0.2], 12, 4)
    chain, wide = ([path for path in tree if not any(path)], [*tree])
    took = [
        dict(tree_seconds(trace(ranks), [TreeDrafts(tuple(each), ranks)], times, lambda _: draft))
        for each in (chain, wide)
    ]
    assert all(wide <= chain + 1e-9 for chain, wide in pairwise(each["lockstep, tree 0"] for each in took))


def test_every_policy_writes_the_text_to_its_end() -> None:
    ranks = [9, *[0, 1, 0, 0, 2, 0, 9, 0, 0, 1] * 4]
    times = MeasuredLatencies(2.0, lambda count: 10.0 + count / 10, 20.0)
    every = [TreeDrafts(tree, ranks) for tree in sorted(trees(shares([ranks[1:]], 3)))]
    assert len(every) > 20
    for name, took in tree_seconds(trace(ranks), every, times, lambda rows: 2.0 + rows / 10):
        assert 0.0 < took < 60.0 * len(ranks), name
    assert Policy("lockstep", 0, drafts_on=False) not in set(tree_policies(1))
