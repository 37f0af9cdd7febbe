"""Quantiles equal the standard library's, and one value is enough."""

from statistics import median, quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.quantile import quantile

VALUES = st.lists(st.floats(0.0, 1e3), min_size=2, max_size=30)


@given(VALUES)
def test_quantiles_equal_the_standard_librarys(values: list[float]) -> None:
    deciles = quantiles(values, n=10, method="inclusive")
    assert [quantile(values, tenth / 10) for tenth in range(1, 10)] == pytest.approx(deciles)
    assert quantile(values, 0.5) == pytest.approx(median(values))
    assert (quantile(values, 0.0), quantile(values, 1.0)) == (min(values), max(values))


@given(st.floats(0.0, 1.0))
def test_every_quantile_of_one_value_is_that_value(share: float) -> None:
    assert quantile([7.0], share) == 7.0
