"""The partition of a text's time: no part is negative, and the parts add up to the total."""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis import strategies as st

from drafter_client.display.panel import means, sparkline
from drafter_client.http.client import VerifierClient
from drafter_client.statistics import (
    OTHER,
    PARTS,
    Span,
    Stats,
    WaitTimes,
    exchange,
    fitted,
    partition,
)
from specpair.numbers import percentages
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


@EACH_WAY
def test_waits_of_a_pair_add_up_to_the_total(client: VerifierClient, mechanisms: Mechanisms) -> None:
    stats = generate(client, toy_drafter(), mechanisms=mechanisms, max_tokens=60).stats
    waits = stats.waits()
    assert min(waits.values()) >= 0.0 and sum(waits.values()) == pytest.approx(stats.total_time)
    assert waits["verify"] > 0.0 and waits["network"] > 0.0


TIMES = st.lists(st.floats(0.0, 1e6), min_size=1)


@given(values=TIMES, most=st.integers(1, 80))
def test_bins_hold_all_values_in_order(values: list[float], most: int) -> None:
    binned = means(values, most)
    assert len(binned) == min(len(values), most)
    assert min(values) <= min(binned) * (1 + 1e-9) and max(binned) <= max(values) * (1 + 1e-9)
    if len(values) <= most:
        assert binned == values


def test_sparkline_scales_values_to_the_greatest() -> None:
    assert sparkline([0.0, 1.0, 4.0, 7.9, 8.0]) == "▁▂▅██"
    assert sparkline([0.0, 0.0]) == "▁▁" and sparkline([]) == ""


VALUES = st.lists(st.floats(0.0, 1e3), min_size=2, max_size=30)
