"""The bound that counts draft steps: cases computed by hand, and no replay is above it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.simulator.known_outputs.draft_bound import Place, least_seconds
from lab.simulator.known_outputs.static_policies import MeasuredLatencies, Trace, policies, replay
from lab.simulator.known_outputs.static_trees import TreeDrafts, likeliest, tree_seconds

KINDS = {
    "+": Place(drafted=True, prepared=True, free=False),
    "=": Place(drafted=True, prepared=True, free=True),  # looked up
    "o": Place(drafted=False, prepared=True, free=False),  # another choice than a chain's
    "-": Place(drafted=False, prepared=False, free=False),
}


def bound(text: str, draft: float = 2.0, rtt: float = 8.0) -> float:
    return least_seconds([KINDS[each] for each in text], MeasuredLatencies(draft, lambda count: 10.0 + count, rtt))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("---", 30),
        ("++", 20),  # as soon as a step over both, 2 + 8 + 10
        ("+++", 22),
        ("=====", 18),
        ("+" * 20, 19 * 2 + 18),
        ("-+", 20),
        ("-=====", 10 + 18),
        ("-++++", 10 + 3 * 2 + 18),
        ("o=====", 10 + 18),  # prepared, but it has to leave
        ("o++++", 10 + 18),  # 6 of 8 s of drafting behind it are over when it is known
    ],
)
def test_equals_that_computed_by_hand(text: str, seconds: float) -> None:
    assert bound(text) == pytest.approx(seconds)


def test_a_drafter_slower_than_the_target_brings_only_what_it_looks_up() -> None:
    assert bound("+" * 50, draft=12.0) == 50 * 10
    assert bound("+" * 9 + "=" * 20 + "+" * 20, draft=12.0) == 9 * 10 + 8 + 10 + 19 * 10  # a pass brings one more


texts = st.lists(st.integers(0, 3), min_size=1, max_size=40).map(lambda ranks: [9, *ranks])
times_of = st.floats(0.0, 50.0)
curves = st.lists(st.floats(1.0, 50.0), min_size=17, max_size=17)  # of passes, not even rising


@settings(max_examples=60)
@given(texts, st.integers(0, 16), times_of, times_of, curves)
def test_no_chain_is_faster(ranks: list[int], k: int, draft: float, rtt: float, passes: list[float]) -> None:
    times = MeasuredLatencies(draft, lambda count: passes[min(count, 16)], rtt, overhead=1.0)
    least = least_seconds([Place(rank == 0, rank == 0, False) for rank in ranks[1:]], times)
    for policy in policies(k):
        assert replay(Trace([rank == 0 for rank in ranks]), times, policy)[-1][0] >= least * (1 - 1e-9), policy


@settings(max_examples=60)
@given(texts, st.integers(1, 12), st.integers(1, 6), times_of, times_of, curves)
def test_no_tree_is_faster(
    ranks: list[int], size: int, depth: int, draft: float, rtt: float, passes: list[float]
) -> None:
    times = MeasuredLatencies(draft, lambda count: passes[min(count, 16)], rtt, overhead=1.0)
    known = [rank < 3 for rank in ranks[1:]]
    least = least_seconds([Place(each, each, False) for each in known], times)
    drafts = TreeDrafts(likeliest([0.4, 0.3, 0.3], size, depth), ranks)
    trace = Trace([rank == 0 for rank in ranks])
    for name, took in tree_seconds(trace, [drafts], times, lambda rows: draft + rows / 10):
        assert took >= least * (1 - 1e-9), name
