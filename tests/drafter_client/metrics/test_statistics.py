"""The partition of a text's time: no part is negative, and the parts add up to the total."""

from itertools import pairwise
from statistics import median, quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis import strategies as st

from drafter_client.display.panel import means, sparkline
from drafter_client.http.client import VerifierClient
from drafter_client.metrics.statistics import InterTokenLatencies, Stats, WaitTimes
from drafter_client.metrics.waits import OTHER, PARTS, Span, exchange, fitted, partition, percentages
from specpair.numbers import quantile
from specpair.speculation.policy.schedule import Mechanisms
from tests.drafter_client.support import EACH_WAY, generate, toy_drafter

moments = some.floats(-50.0, 150.0, allow_nan=False)
spans = some.lists(some.tuples(some.sampled_from(PARTS), moments, moments), max_size=30)
times = some.floats(0.0, 1e6, allow_nan=False)


@given(spans, some.floats(0.0, 120.0, allow_nan=False))
def test_parts_add_up_to_the_total(found: list[Span], end: float) -> None:
    parts = partition(found, 0.0, end)
    assert list(parts) == [*PARTS, OTHER]
    assert min(parts.values()) >= 0.0 and sum(parts.values()) == pytest.approx(end, abs=1e-6)


@given(spans)
def test_each_moment_counts_for_the_first_active_part(found: list[Span]) -> None:
    edges = sorted({0.0, 100.0, *(min(100.0, max(0.0, at)) for _, first, last in found for at in (first, last))})
    expected = dict.fromkeys((*PARTS, OTHER), 0.0)
    for low, high in pairwise(edges):
        active = {part for part, first, last in found if first <= low and last >= high}
        expected[next((part for part in PARTS if part in active), OTHER)] += high - low
    assert partition(found, 0.0, 100.0) == pytest.approx(expected, abs=1e-6)


def test_two_drafts_in_flight_count_once() -> None:
    found = exchange("verify", 0.0, 100.0, 0.0, 40.0) + exchange("verify", 10.0, 140.0, 30.0, 40.0)
    parts = partition(found, 0.0, 150.0)
    assert parts == {"prefill": 0, "verify": 80.0, "queue": 0.0, "network": 60.0, "drafting": 0, "other": 10.0}


@given(times, times, times, times)
def test_spans_of_a_request_lie_within_its_time(sent: float, took: float, queue: float, model: float) -> None:
    found = exchange("verify", sent, sent + took, queue, model)
    assert all(sent - 1e-6 <= first <= last + 1e-6 and last <= sent + took + 1e-6 for _, first, last in found)


@given(some.dictionaries(some.sampled_from(PARTS), times), times)
def test_fitted_times_add_up_to_the_total(measured: dict[str, float], total: float) -> None:
    parts = fitted(measured, total)
    assert min(parts.values()) >= 0.0 and sum(parts.values()) == pytest.approx(total, abs=1e-6)


@given(some.lists(times, max_size=8))
def test_percentages_add_up_to_100(values: list[float]) -> None:
    shares = percentages(values)
    assert sum(shares) == (100 if sum(values) > 0 else 0)
    assert all(
        abs(share - 100 * value / sum(values)) <= 1 for share, value in zip(shares, values, strict=True) if value
    )


@pytest.mark.parametrize("mode", ["target", "fused"])
def test_server_text_closed_early_counts_as_verify(mode: str) -> None:
    assert Stats(mode=mode, total_time=70.0).waits()["verify"] == 70.0
    finished = Stats(
        mode=mode, total_time=70.0, finish_reason="stop", times=WaitTimes(verify=40.0, network=10.0)
    ).waits()
    assert (finished["verify"], finished["network"], finished["other"]) == (40.0, 10.0, 20.0)


def test_waits_of_stretches_add_up() -> None:
    fused = Stats(mode="fused", total_time=60.0)
    target = Stats(mode="target", total_time=60.0, finish_reason="stop", times=WaitTimes(verify=20.0, network=40.0))
    whole = Stats(mode="auto", total_time=100.0, stretches=[fused.waits(), target.waits()])
    assert sum(whole.waits().values()) == pytest.approx(100.0)
    assert whole.waits()["verify"] == pytest.approx(80.0 / 1.2)


@EACH_WAY
def test_waits_of_a_pair_add_up_to_the_total(client: VerifierClient, mechanisms: Mechanisms) -> None:
    stats = generate(client, toy_drafter(), mechanisms=mechanisms, max_tokens=60).stats
    waits = stats.waits()
    assert min(waits.values()) >= 0.0 and sum(waits.values()) == pytest.approx(stats.total_time)
    assert waits["verify"] > 0.0 and waits["network"] > 0.0


TIMES = st.lists(st.floats(0.0, 1e6), min_size=1)


@given(first=st.floats(0.0, 1e6), others=TIMES)
def test_first_token_is_not_an_inter_token_latency(first: float, others: list[float]) -> None:
    pace = InterTokenLatencies.of([first, *others])
    assert pace is not None
    assert (pace.median, pace.p90, pace.longest) == (quantile(others, 0.5), quantile(others, 0.9), max(others))


@pytest.mark.parametrize("token_times", [[], [5.0]])
def test_fewer_than_two_tokens_have_no_pace(token_times: list[float]) -> None:
    assert InterTokenLatencies.of(token_times) is None


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
