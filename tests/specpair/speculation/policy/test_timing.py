"""Time estimates follow the measurements and resist spikes. Where nothing depends on the unit, times are in any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.policy.timing import LatencyModel

TIMES = st.floats(0.0, 1e4)


def test_link_is_the_exchange_without_the_verifiers_time() -> None:
    times = LatencyModel()
    times.exchanged(80.0, 10.0, 45.0)
    assert times.link == 25.0


def test_link_is_never_negative() -> None:
    times = LatencyModel()
    times.exchanged(80.0, 10.0, 90.0)
    assert times.link == 0.0


@pytest.mark.parametrize(("tokens", "slope"), [(40, 0.0), (300, 0.1), (600, 0.1)])
def test_draft_token_costs_what_it_adds_to_a_pass_as_wide_as_the_shared_one(tokens: int, slope: float) -> None:
    flat = 100  # tokens up to which passes take as long
    times = LatencyModel([10.0 + 0.1 * max(0, width - flat) for width in range(1, 513)])
    for _ in range(20):
        times.verified(2, 10.0)
        times.shared(2, 10, tokens)
    assert times.cost(3) - times.cost(2) == pytest.approx(10 * slope)
    assert times.cost(2) - times.cost(1) == pytest.approx(10 * slope)


def test_spikes_do_not_change_the_link() -> None:
    times = LatencyModel()
    for number in range(40):
        times.exchanged(20.0 if number % 3 else 300.0, 0.0, 0.0)
        assert times.link == 20.0 or number == 0


def test_changed_link_is_noticed_within_some_exchanges() -> None:
    times = LatencyModel()
    for took in (*[20.0] * 50, *[90.0] * 24):
        times.exchanged(took, 0.0, 0.0)
    assert times.link == 90.0
    for _ in range(8):
        times.exchanged(5.0, 0.0, 0.0)
    assert times.link == 5.0, "a shorter link is noticed sooner"


def test_times_without_measurements_are_tiny_but_not_0() -> None:
    times = LatencyModel()
    assert times.link == times.queue == 0.0
    assert 0.0 < times.draft() <= times.draft(6) < 1e-5 and 0.0 < times.verify(0) <= times.verify(16) < 1e-5


def test_further_branch_is_assumed_to_take_half_a_step_until_measured() -> None:
    times = LatencyModel()
    times.drafted(1, 8.0)
    assert (times.draft(), times.draft(2), times.draft(4)) == (8.0, 12.0, 20.0)
    times.drafted(4, 11.0)
    assert (times.draft(2), times.draft(4)) == (9.0, 11.0)


def test_share_of_a_further_branch_is_known_after_some_steps_and_kept_for_another_text() -> None:
    times = LatencyModel()
    times.drafted(1, 8.0)
    for _ in range(2):
        times.drafted(2, 10.0)
        assert times.wider == 0.0
    times.drafted(2, 10.0)
    assert times.wider == pytest.approx(0.25)
    other = times.for_another_text()
    assert other.wider == pytest.approx(0.25) and not other.draft_known
    other.drafted(1, 8.0)
    for _ in range(3):
        other.drafted(2, 8.0)
    assert other.wider == 0.0


def test_wide_step_estimates_the_draft_time_before_a_narrow_one() -> None:
    times = LatencyModel()
    assert not times.draft_known
    times.drafted(3, 16.0)
    assert times.draft_known and times.draft() == 8.0 and times.draft(3) == 16.0


def test_margin_grows_with_the_spread_of_passes() -> None:
    even, uneven = LatencyModel(), LatencyModel()
    for number in range(40):
        even.verified(2, 0.04)
        uneven.verified(2, 0.04 + 0.005 * (-1) ** number)
    assert even.margin == pytest.approx(0.002, abs=1e-4) and 0.009 < uneven.margin < 0.015
    for number in range(40):
        uneven.verified(2, 0.001 + 0.079 * (number % 2))
    assert uneven.margin == uneven.verify(0) / 2, "never more than half a step"


def test_fast_wide_step_makes_branches_free_but_not_negative() -> None:
    times = LatencyModel()
    times.drafted(1, 8.0)
    times.drafted(3, 5.0)
    assert times.draft(3) == times.draft(1) == 8.0


def test_draft_time_follows_slower_steps() -> None:
    times = LatencyModel()
    for took in (*[2.0] * 30, *[10.0] * 30):
        times.drafted(1, took)
    assert times.draft() == pytest.approx(10.0, rel=0.06)


def test_queue_is_a_mean_of_the_last_waits() -> None:
    times = LatencyModel()
    for took in (0.0, 40.0) * 20:
        times.queued(took)
    assert 15.0 < times.queue < 25.0


def test_pass_times_start_as_reported() -> None:
    reported = [30.0, 35.0, 56.0, 58.0, 79.0]
    times = LatencyModel(reported)
    assert [times.verify(drafts) for drafts in range(5)] == pytest.approx(reported)


def test_pass_times_follow_longer_measurements() -> None:
    times = LatencyModel([30.0, 35.0, 40.0])
    for _ in range(40):
        for drafts in range(3):
            times.verified(drafts, 1.5 * (30.0 + 5.0 * drafts))
    assert [times.verify(drafts) for drafts in range(3)] == pytest.approx([45.0, 52.5, 60.0], rel=0.02)


def test_unmeasured_pass_times_lie_on_a_line() -> None:
    times = LatencyModel()
    for _ in range(10):
        for drafts in (0, 4, 8):
            times.verified(drafts, 20.0 + 3.0 * drafts)
    assert [times.verify(drafts) for drafts in (2, 6, 12)] == pytest.approx([26.0, 38.0, 56.0], rel=0.02)


@given(reported=st.lists(TIMES, max_size=5), events=st.lists(st.tuples(st.integers(0, 8), TIMES), max_size=20))
def test_times_stay_positive_and_monotonic_after_any_measurements(
    reported: list[float], events: list[tuple[int, float]]
) -> None:
    times = LatencyModel(reported)
    for count, took in events:
        times.verified(count, took)
        times.drafted(1 + count, took)
        times.exchanged(took, 0.0, took / 2)
        times.queued(took)
    assert times.link >= 0.0 and times.queue >= 0.0
    assert all(times.verify(drafts) > 0.0 for drafts in range(20))
    assert 0.0 < times.draft(1) <= times.draft(2) <= times.draft(6)


def test_first_pass_rescales_the_reported_times() -> None:
    times = LatencyModel([30.0, 35.0, 56.0, 58.0, 79.0])
    times.verified(1, 70.0)
    assert [times.verify(drafts) for drafts in range(5)] == pytest.approx([60.0, 70.0, 112.0, 116.0, 158.0], rel=0.05)


@pytest.mark.parametrize("sessions", [1, 8, 32])
def test_draft_token_costs_its_delay_of_all_sessions_in_the_pass(sessions: int) -> None:
    times = LatencyModel([30.0 + 0.5 * tokens for tokens in range(17)])
    took = 30.0 + 0.5 * 3 * sessions  # each sends three
    for _ in range(60):
        times.verified(3, took)
        times.shared(3, sessions)
    assert times.cost(3) == pytest.approx(took, rel=0.02)
    assert times.cost(8) - times.cost(3) == pytest.approx(2.5 * sessions, rel=0.3)
    assert times.cost(0) == pytest.approx(30.0, rel=0.15)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 8), st.floats(0.01, 1.0), st.integers(1, 9)), max_size=12))
def test_costs_do_not_depend_on_whether_they_were_asked_for_before(passes: list[tuple[bool, int, float, int]]) -> None:
    asked, other = LatencyModel([0.1, 0.11, 0.13]), LatencyModel([0.1, 0.11, 0.13])
    for measured, judged, seconds, sessions in passes:
        for times in (asked, other):
            if measured:
                times.verified(judged, seconds)
            times.shared(judged, sessions)
        costs = [asked.cost(drafts) for drafts in range(9)]
    if passes:
        assert costs == [other.cost(drafts) for drafts in range(9)]
