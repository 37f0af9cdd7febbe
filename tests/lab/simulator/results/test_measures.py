"""Intervals of means, against published values, and how they are told."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.results.measures import MEASURES, estimate, t_quantile


@pytest.mark.parametrize(
    ("degrees", "t"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423), (120, 1.9799)]
)
def test_quantiles_are_those_of_the_tables(degrees: int, t: float) -> None:
    assert t_quantile(degrees) == pytest.approx(t, abs=5e-5)


def test_an_interval() -> None:
    found = estimate([9.0, 10.0, 11.0])
    assert found.mean == 10.0 and found.half == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)
    assert found.low is not None and found.high is not None and found.low < 10 < found.high


def test_one_replication_has_no_interval_and_none_no_mean() -> None:
    assert estimate([math.nan, 4.0]).half is None and estimate([math.nan, 4.0]).mean == 4.0
    assert math.isnan(estimate([math.nan]).mean)


def test_an_interval_ends_where_values_cannot_be() -> None:
    share, seconds = MEASURES["slo_attainment"], MEASURES["ttft_p95_ms"]
    wide = share.estimate([0.2, 0.99])
    assert (wide.low, wide.high, wide.cut) == (0.0, 1.0, True)
    assert share.told(wide) == "59.5 % (0.0 % to 100.0 %)"
    narrow = share.estimate([0.5, 0.51, 0.49])
    assert not narrow.cut and share.told(narrow) == "50.0 % ± 2.5 %"
    assert seconds.told(seconds.estimate([1.0, 400.0])) == "200 (0 to 2,735)"
    assert not share.estimate([1.0, 1.0]).cut and share.estimate([1.0, 1.0]).high == 1.0
    assert seconds.told(estimate([2.0, 2.0]), signed=True) == "+2.00 ± 0"


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9))
def test_the_interval_of_a_share_is_one_of_shares_and_has_the_mean(shares: list[float]) -> None:
    found = MEASURES["acceptance"].estimate(shares)
    assert found.low is not None and found.high is not None
    assert 0 <= found.low <= found.mean <= found.high <= 1
