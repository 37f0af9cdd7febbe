"""Running estimates forget old values, resist spikes, and never decrease with the count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.policy.timing import Curve, Line, Mean

TIMES = st.floats(0.0, 1e6)


def test_mean_without_values_is_0() -> None:
    mean = Mean(0.9)
    assert mean.value == 0.0 and mean.weight == 0.0


def test_mean_fades_past_values() -> None:
    mean = Mean(0.5)
    for value in (0.0, 0.0, 8.0):
        mean.learn(value)
    assert mean.value == pytest.approx(8.0 / 1.75)
    assert mean.weight == 1.75


def test_fading_keeps_the_value_of_a_mean() -> None:
    mean = Mean(0.9)
    mean.learn(4.0)
    mean.fade(0.5)
    assert (mean.value, mean.weight) == (4.0, 0.5)


def test_line_fits_points_of_a_line() -> None:
    line = Line(0.98)
    for x in (0.0, 3.0, 7.0) * 30:
        line.learn(x, 10.0 + 2.0 * x)
    assert [line.at(x) for x in (0.0, 5.0, 20.0)] == pytest.approx([10.0, 20.0, 50.0], rel=0.02)
    assert line.slope == pytest.approx(2.0, rel=0.05)


def test_line_uses_its_prior_slope_before_a_second_x() -> None:
    reported, assumed = Line(0.98, 0.25), Line(0.98)
    for line in (reported, assumed):
        line.learn(4.0, 50.0)
    assert (reported.at(0.0), reported.at(4.0), reported.at(8.0)) == (25.0, 50.0, 75.0), "a quarter of its height at 0"
    assert (assumed.at(2.0), assumed.at(4.0), assumed.at(6.0)) == (40.0, 50.0, 60.0)


@given(points=st.lists(st.tuples(st.floats(0.0, 20.0) | st.floats(0.0, 4096.0), TIMES), min_size=1, max_size=30))
def test_line_never_falls_nor_turns_negative(points: list[tuple[float, float]]) -> None:
    line = Line(0.9)
    for x, y in points:
        line.learn(x, y)
    heights = [line.at(float(x)) for x in range(0, 40, 5)]
    assert heights == sorted(heights) and heights[0] >= 0.0 and line.slope >= 0.0


def test_curve_without_samples_is_0() -> None:
    assert Curve().at(0) == Curve([5.0, 6.0]).at(3) == 0.0


def test_curve_follows_the_measurements_at_each_count() -> None:
    """Passes that take two tokens at a time: 20, 20, 30, 30, 40, …"""
    curve = Curve()
    for _ in range(40):
        for count in range(8):
            curve.learn(count, 20.0 + 10.0 * (count // 2))
    assert [curve.at(count) for count in range(8)] == pytest.approx([20.0 + 10.0 * (n // 2) for n in range(8)], rel=0.1)


def test_curve_takes_steps_from_reported_times() -> None:
    reported = [30.0, 35.0, 56.0, 58.0, 79.0]
    curve = Curve(reported)
    curve.learn(0, 60.0)  # twice as long: the proportions hold
    curve.learn(4, 158.0)
    assert curve.at(2) - curve.at(1) > 3 * (curve.at(1) - curve.at(0)) > 0


def test_impossible_reported_times_are_corrected() -> None:
    """A wider pass costs no less than a narrower one, and no more than as many passes over one token."""
    curve = Curve([10.0, 4.0, 1000.0])
    curve.learn(0, 10.0)
    assert curve.at(0) == curve.at(1) == 10.0
    assert curve.at(2) <= 30.0 + 1e-9


def test_all_counts_follow_a_change_of_speed() -> None:
    """An exchange takes 100 plus 10 a draft token, in any unit, for a while, then a fifth of both."""
    curve = Curve()
    for _ in range(5):
        for count in (2, 5, 8):
            curve.learn(count, 100.0 + 10.0 * count)
    for _ in range(100):
        curve.learn(2, 24.0)
    assert curve.at(5) < 100.0


def test_spike_hardly_changes_the_curve() -> None:
    curve = Curve()
    for count in (1, 2, 3, 4) * 5:
        curve.learn(count, 80.0)
    curve.learn(5, 8000.0)
    assert curve.at(5) < 200.0
