"""Whatever was measured, a pass costs a positive, finite time and a wider one no less, and policies stay sane."""

from math import inf, isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.policy.cost_by_width import LEAST, MOST, CostByWidth
from specpair.speculation.policy.draft_length import MAX_AUTO, prospects
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.policy.timing import LatencyModel

NOISY = [(1, 0.150), (2, 0.219), (4, 0.357), (8, 0.814), (9, 0.592)]
NONSENSE = [0.0, -1.0, nan, inf, -inf, 1e300, 5e-324]
SECONDS = st.floats(1e-9, 1e5) | st.sampled_from(NONSENSE)
POINTS = st.lists(st.tuples(st.integers(1, 600), SECONDS), max_size=20)
TIMES = st.lists(SECONDS, max_size=40)
WIDTHS = [*range(1, 100), 128, 600, 601, 4096, 10**6]


@given(points=POINTS)
def test_costs_rise_and_are_positive_and_finite(points: list[tuple[int, float]]) -> None:
    cost = CostByWidth(points)
    found = [cost.at(width) for width in WIDTHS]
    assert found == sorted(found) and found[0] >= LEAST and isfinite(found[-1])
    measured = [seconds for _, seconds in points if isfinite(seconds) and seconds > 0.0]
    low, high = min(measured, default=LEAST), max(measured, default=LEAST)
    assert max(cost, default=low) <= min(max(high, LEAST), MOST) * (1 + 1e-9)
    assert found[0] >= min(max(low, LEAST), MOST) * (1 - 1e-9)


@given(points=POINTS)
def test_costs_that_rise_already_stay_as_they_are(points: list[tuple[int, float]]) -> None:
    cost = CostByWidth(points)
    again = CostByWidth.of(list(cost))
    assert list(again) == pytest.approx(list(cost)) and CostByWidth.of(cost) is cost
    assert len(cost) == max((width for width, seconds in points if 0.0 < seconds < inf), default=0)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (NOISY, {1: 0.150, 3: 0.288, 8: 0.703, 9: 0.703, 10: 0.703 + 0.0865, 2009: 0.703 + 2000 * 0.0865}),
        ([(4, 2.0), (8, 4.0)], {1: 2.0, 4: 2.0, 6: 3.0, 12: 6.0}),
        ([(1, 1.0), (2, 1.0)], {3: 1.0, 5000: 1.0}),
        ([(8, 2.0)], {1: 2.0, 8: 2.0, 16: 4.0}),
        ([(1, 5.0), (2, 1.0), (3, 3.0)], {1: 3.0, 2: 3.0, 3: 3.0, 4: 3.0}),
        ([(1, 1.0), (2, nan), (3, 0.0), (4, -1.0), (5, inf), (6, 2.0), (6, 9.0)], {2: 1.2, 6: 2.0, 7: 2.2}),
        ([], {1: LEAST, 5000: LEAST}),
        ([(0, 1.0), (-3, 2.0), (2, 1.0), (4, 1.5)], {1: 1.0, 3: 1.25}),
    ],
)
def test_between_measured_widths_are_lines_and_beyond_them_the_steepest(
    points: list[tuple[int, float]], expected: dict[int, float]
) -> None:
    cost = CostByWidth(points)
    assert {width: cost.at(width) for width in expected} == pytest.approx(expected)


def test_as_a_sequence_it_has_the_widths_to_the_widest_measured() -> None:
    cost = CostByWidth([(1, 1.0), (3, 2.0)])
    assert (list(cost), cost[:2], cost[-1], len(cost)) == ([1.0, 1.5, 2.0], [1.0, 1.5], 2.0, 3)
    with pytest.raises(IndexError):
        cost[3]


@given(
    times=TIMES,
    passes=st.lists(st.tuples(st.integers(0, 96), st.floats(0.0, 1e3)), max_size=20),
    shared=st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)),
    each=st.floats(0.0, 1.0),
    overlap=st.booleans(),
)
def test_the_draft_length_is_chosen_by_any_times_that_a_verifier_may_tell(
    times: list[float], passes: list[tuple[int, float]], shared: tuple[int, int], each: float, overlap: bool
) -> None:
    latencies = LatencyModel(times)
    for judged, seconds in passes:
        latencies.verified(judged, seconds)
        latencies.shared(judged, *shared)
    verifies = [latencies.verify(drafts) for drafts in range(97)]
    assert verifies == sorted(verifies) and verifies[0] > 0.0
    costs = [latencies.cost(drafts) for drafts in range(97)]
    assert costs == sorted(costs) and costs[0] > 0.0 and isfinite(costs[-1])
    found = prospects(latencies, [each**k for k in range(MAX_AUTO + 2)], Mechanisms() if overlap else LOCKSTEP, 0.5)
    assert 0 <= found.length <= MAX_AUTO and 0.0 < found.rate < inf and 0.0 < found.price < inf
    assert found.length == 0 or each > 0.0
