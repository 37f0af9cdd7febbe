"""Intervals of means and differences, against published values."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.results.measures import MEASURES
from lab.simulator.results.report.table import told
from lab.simulator.results.student import difference, estimate, paired_difference, t_quantile

SEVERAL = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12)


@pytest.mark.parametrize(
    ("degrees", "t"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423), (120, 1.9799)]
)
def test_quantiles_are_those_of_the_tables(degrees: int, t: float) -> None:
    assert t_quantile(degrees) == pytest.approx(t, abs=5e-5)


def test_an_interval() -> None:
    found = estimate([9.0, 10.0, 11.0])
    assert found.mean == 10.0 and found.half == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)
    assert found.low is not None and found.high is not None and found.low < 10 < found.high
    assert found.clear and not estimate([-1.0, 0.5]).clear


def test_one_replication_has_no_interval_and_none_no_mean() -> None:
    assert estimate([math.nan, 4.0]).half is None and not estimate([4.0]).clear
    assert math.isnan(estimate([math.nan]).mean)


def test_what_both_have_in_common_drops_out_of_a_paired_difference() -> None:
    before, after = [10.0, 20.0, 30.0], [11.0, 21.1, 30.9]
    assert paired_difference(before, after).clear and not difference(before, after).clear
    assert paired_difference(before, after).mean == pytest.approx(1.0)


def test_an_interval_ends_where_values_cannot_be() -> None:
    share, seconds = MEASURES["slo_attainment"], MEASURES["ttft_p95_ms"]
    wide = share.estimate([0.2, 0.99])
    assert (wide.low, wide.high, wide.cut) == (0.0, 1.0, True)
    assert told(share, wide) == "59.5 % (0.0 % to 100.0 %)"
    narrow = share.estimate([0.5, 0.51, 0.49])
    assert not narrow.cut and told(share, narrow) == "50.0 % ± 2.5 %"
    assert told(seconds, seconds.estimate([1.0, 400.0])) == "200 (0 to 2,735)"
    assert not share.estimate([1.0, 1.0]).cut and share.estimate([1.0, 1.0]).high == 1.0
    assert not paired_difference([0.2, 0.9], [0.9, 0.2]).cut, "a difference may be negative"


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9))
def test_the_interval_of_a_share_is_one_of_shares_and_has_the_mean(shares: list[float]) -> None:
    found = MEASURES["acceptance"].estimate(shares)
    assert found.low is not None and found.high is not None
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert found.reach == (found.mean - found.low, found.high - found.mean)


def test_welch() -> None:
    """Welch, Biometrika 34 (1947): the degrees of freedom lie between those of the smaller side and of both."""
    found = difference([20.0, 22.0, 19.0, 20.0, 22.0, 18.0], [28.0, 30.0, 29.0, 26.0])
    assert found.mean == pytest.approx(28.25 - 121 / 6)
    assert found.half is not None and t_quantile(8) < found.half / 1.0826 < t_quantile(3)
    assert difference([1.0], [2.0, 3.0]).half is None
    assert difference([1.0, 1.0], [2.0, 2.0]).clear


@given(SEVERAL, SEVERAL)
def test_a_difference_turns_with_its_sides(one: list[float], other: list[float]) -> None:
    there, back = difference(one, other), difference(other, one)
    assert there.mean == pytest.approx(-back.mean) and there.half == pytest.approx(back.half)
