"""Quantiles in flat memory, beside those of all values."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.results.histogram import WIDTH, Histogram
from specpair.quantile import quantile

VALUES = st.lists(st.floats(0, 1e6).filter(lambda value: value == 0 or value > 1e-9), min_size=1, max_size=60)


@given(VALUES, st.floats(0, 1))
def test_a_quantile_is_off_by_half_a_bucket_at_most(values: list[float], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    [found] = histogram.quantiles(share)
    assert found == pytest.approx(quantile(values, share), rel=WIDTH / 2 + 1e-9)
    assert min(values) <= found <= max(values)
    assert histogram.count == len(values) and histogram.mean == pytest.approx(sum(values) / len(values))


def test_nothing_has_no_quantile() -> None:
    assert all(math.isnan(value) for value in (*Histogram().quantiles(0.5, 0.9), Histogram().mean))
