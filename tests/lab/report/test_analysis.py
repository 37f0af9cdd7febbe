"""Statistics of a trace: shares, lanes and rates equal those counted one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.report.reader import Record, RunDetail, RunTrace
from lab.report.recorded import acceptance_by_depth
from lab.report.terminal import (
    Span,
    Track,
    coverage,
    speed_over_time,
    timeline,
)

NOTHING = RunDetail(prefills=[], steps=[], self_continuation_passes=[])
MS = st.just(0.0) | st.floats(1e-6, 1e5)  # a clock that counts nanoseconds gives no smaller times
SPANS = st.lists(st.builds(lambda lane, at, long: Span(lane, at, at + long), st.sampled_from(Track), MS, MS))
JUDGED = st.lists(st.integers(0, 9).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, count))))


@given(JUDGED, st.integers(0, 3))
def test_acceptance_by_depth_counts_each_judged_draft_token(pairs: list[tuple[int, int]], unanswered: int) -> None:
    rows: list[Record] = [{"judged": judged, "accepted": accepted} for judged, accepted in pairs]
    no_answer: Record = {"judged": None, "accepted": None}
    depths = acceptance_by_depth([*rows, *[no_answer] * unanswered])
    assert sum(each.drafts for each in depths) == sum(judged for judged, _ in pairs)
    assert sum(each.accepted for each in depths) == sum(accepted for _, accepted in pairs)
    assert [each.depth for each in depths] == list(range(1, max((judged for judged, _ in pairs), default=0) + 1))
    assert all(0.0 <= each.share <= 1.0 and each.drafts > 0 for each in depths)


@given(MS, MS, MS, MS)
def test_lanes_of_an_exchange_fill_its_time(sent: float, rtt: float, queue: float, forward: float) -> None:
    row: Record = {"sent_ms": sent, "queue_ms": queue, "forward_ms": forward, "arrived_ms": sent + rtt}
    spans = timeline(RunTrace(1, {}, [row], [], NOTHING))
    ends = [sent, *(span.end for span in spans)]
    assert [span.begin for span in spans] == pytest.approx(ends[:-1])  # one after the other, without a gap
    assert ends[-1] == pytest.approx(sent + rtt)
    if queue + forward <= rtt:
        for lane, took in ((Track.QUEUE, queue), (Track.VERIFY, forward)):
            assert sum(span.end - span.begin for span in spans if span.lane is lane) == pytest.approx(took, abs=1e-6)


@given(SPANS, MS, st.floats(0.001, 1e5), st.integers(1, 90))
def test_coverage_equals_sampled_activity(spans: list[Span], begin: float, length: float, cells: int) -> None:
    end = begin + length
    for lane in Track:
        shares = coverage(spans, lane, begin, end, cells)
        assert len(shares) == cells and all(0.0 <= share <= 1.0 for share in shares)
        # Compared with time sampled in the middle of thin slices: each edge of a span makes at most one of them wrong.
        inside = [span for span in spans if span.lane is lane]
        slices = 400
        active = sum(
            any(span.begin <= begin + length * (at + 0.5) / slices < span.end for span in inside)
            for at in range(slices)
        )
        assert sum(shares) / cells == pytest.approx(active / slices, abs=(2 * len(inside) + 1e-6) / slices)


@given(st.lists(MS, max_size=200), MS, st.integers(1, 40))
def test_rates_count_each_token_once(times: list[float], total: float, most: int) -> None:
    rates = speed_over_time([{"committed_ms": at} for at in times], total, most)
    assert len(rates) <= most
    if max([total, *times]) == 0.0:
        assert rates == []
        return
    tokens = sum(rate.rate * (rate.end - rate.begin) / 1e3 for rate in rates)
    assert tokens == pytest.approx(len(times))
    assert rates[0].begin == 0.0 and rates[-1].end == pytest.approx(max([total, *times]))
