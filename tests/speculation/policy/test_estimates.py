"""Running estimates: they forget, keep their heads in a hiccup, and never make more of a thing cost less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculation.policy.estimates import Curve, Line, Mean

MS = st.floats(0.0, 1e6)


def test_a_mean_of_nothing_is_nothing() -> None:
    mean = Mean(0.9)
    assert mean.value == 0.0 and mean.weight == 0.0


def test_a_mean_lets_the_past_fade() -> None:
    mean = Mean(0.5)
    for value in (0.0, 0.0, 8.0):
        mean.learn(value)
    assert mean.value == pytest.approx(8.0 / 1.75)
    assert mean.weight == 1.75


def test_a_mean_that_counts_for_less_stays_where_it_is() -> None:
    mean = Mean(0.9)
    mean.learn(4.0)
    mean.fade(0.5)
    assert (mean.value, mean.weight) == (4.0, 0.5)


def test_a_line_through_points_of_a_line_is_that_line() -> None:
    line = Line(0.98)
    for x in (0.0, 3.0, 7.0) * 30:
        line.learn(x, 10.0 + 2.0 * x)
    assert [line.at(x) for x in (0.0, 5.0, 20.0)] == pytest.approx([10.0, 20.0, 50.0], rel=0.02)
    assert line.slope == pytest.approx(2.0, rel=0.05)


def test_before_a_second_x_a_line_is_as_steep_as_it_was_told_or_rises_by_a_tenth_of_its_height() -> None:
    told, guessed = Line(0.98, 0.25), Line(0.98)
    for line in (told, guessed):
        line.learn(4.0, 50.0)
    assert (told.at(0.0), told.at(4.0), told.at(8.0)) == (25.0, 50.0, 75.0), "a quarter of its height at 0"
    assert (guessed.at(2.0), guessed.at(4.0), guessed.at(6.0)) == (40.0, 50.0, 60.0)


@given(points=st.lists(st.tuples(st.floats(0.0, 20.0), MS), min_size=1, max_size=30))
def test_a_line_never_falls_nor_comes_near_zero(points: list[tuple[float, float]]) -> None:
    line = Line(0.9)
    for x, y in points:
        line.learn(x, y)
    heights = [line.at(float(x)) for x in range(0, 40, 5)]
    assert heights == sorted(heights) and heights[0] >= 0.0 and line.slope >= 0.0


def test_an_unused_curve_costs_nothing() -> None:
    assert Curve().at(0) == Curve([5.0, 6.0]).at(3) == 0.0


def test_a_curve_bends_to_what_was_measured_at_each_count() -> None:
    """Passes over two tokens at a time: 20, 20, 30, 30, 40, …"""
    curve = Curve()
    for _ in range(40):
        for count in range(8):
            curve.learn(count, 20.0 + 10.0 * (count // 2))
    assert [curve.at(count) for count in range(8)] == pytest.approx([20.0 + 10.0 * (n // 2) for n in range(8)], rel=0.1)


def test_a_curve_that_was_told_of_steps_knows_them_before_it_has_seen_them() -> None:
    told = [30.0, 35.0, 56.0, 58.0, 79.0]
    curve = Curve(told)
    curve.learn(0, 60.0)  # twice as long: the proportions hold
    curve.learn(4, 158.0)
    assert curve.at(2) - curve.at(1) > 3 * (curve.at(1) - curve.at(0)) > 0


def test_what_cannot_be_in_what_a_verifier_says_is_put_right() -> None:
    """A wider pass costs no less than a narrower one, and no more than as many passes over one token."""
    curve = Curve([10.0, 4.0, 1000.0])
    curve.learn(0, 10.0)
    assert curve.at(0) == curve.at(1) == 10.0
    assert curve.at(2) <= 30.0 + 1e-9


def test_other_lengths_are_not_judged_by_slower_days() -> None:
    """An exchange takes 100 ms and 10 a draft for a while, then a fifth of both."""
    curve = Curve()
    for _ in range(5):
        for count in (2, 5, 8):
            curve.learn(count, 100.0 + 10.0 * count)
    for _ in range(100):
        curve.learn(2, 24.0)
    assert curve.at(5) < 100.0


def test_a_hiccup_is_no_price() -> None:
    curve = Curve()
    for count in (1, 2, 3, 4) * 5:
        curve.learn(count, 80.0)
    curve.learn(5, 8000.0)
    assert curve.at(5) < 200.0
