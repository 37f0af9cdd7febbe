"""Inter-token latencies: the statistics equal those of the list, and the sparkline has its shape."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.metrics.pace import Pace, means, sparkline
from specpair.quantile import quantile

TIMES = st.lists(st.floats(0.0, 1e6), min_size=1)


@given(first=st.floats(0.0, 1e6), others=TIMES)
def test_first_token_is_not_an_inter_token_latency(first: float, others: list[float]) -> None:
    pace = Pace.of([first, *others])
    assert pace is not None
    assert (pace.median, pace.p90, pace.longest) == (quantile(others, 0.5), quantile(others, 0.9), max(others))


@pytest.mark.parametrize("token_times", [[], [5.0]])
def test_fewer_than_two_tokens_have_no_pace(token_times: list[float]) -> None:
    assert Pace.of(token_times) is None


@given(values=TIMES, most=st.integers(1, 80))
def test_bins_hold_all_values_in_order(values: list[float], most: int) -> None:
    binned = means(values, most)
    assert len(binned) == min(len(values), most)
    assert min(values) <= min(binned) * (1 + 1e-9) and max(binned) <= max(values) * (1 + 1e-9)
    if len(values) <= most:
        assert binned == values


def test_each_bin_is_the_mean_of_its_values() -> None:
    assert means([1.0, 3.0, 10.0, 20.0, 0.0, 0.0], 3) == [2.0, 15.0, 0.0]
    assert means([], 5) == []


def test_sparkline_scales_values_to_the_greatest() -> None:
    assert sparkline([0.0, 1.0, 4.0, 7.9, 8.0]) == "▁▂▅██"
    assert sparkline([0.0, 0.0]) == "▁▁" and sparkline([]) == ""
