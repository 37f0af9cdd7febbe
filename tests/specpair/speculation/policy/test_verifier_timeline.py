"""Pass starts computed by hand, for a link of 20 and passes of 50 plus 2 a draft token, in any unit of time."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.draft import Draft
from specpair.speculation.policy.schedule import RejectionPolicy
from specpair.speculation.policy.verifier_timeline import InFlightDraft, PassStart, VerifierTimeline


class Costs:
    """Stands in for a LatencyModel with measured times."""

    link = 20.0

    def verify(self, drafts: int) -> float:
        return 50.0 + 2.0 * drafts


def _timeline(self_continue: bool = False, next_in: float | None = None) -> VerifierTimeline:
    """Seven tokens are known since 100, so the verifier's pass ended at 90."""
    timeline = VerifierTimeline(Costs(), self_continue, 3)  # type: ignore[arg-type]
    timeline.news(7, 100.0)
    timeline.expects(next_in, 100.0)
    return timeline


def _sent(timeline: VerifierTimeline, at: float, position: int, drafts: int, next_in: float = 0.0) -> InFlightDraft:
    in_flight_draft = InFlightDraft(
        Draft.chain(position, range(position, position + drafts)), at, RejectionPolicy(timeline.self_continue, next_in)
    )
    timeline.sent(in_flight_draft)
    return in_flight_draft


def _start(timeline: VerifierTimeline, at: float, now: float | None = None) -> PassStart:
    return timeline.starts([at], at if now is None else now)[0]


def test_pass_starts_when_the_draft_in_flight_is_judged() -> None:
    timeline = _timeline()
    _sent(timeline, 100.0, 7, 3)  # arrives at 110, is judged at 166: three draft tokens and a bonus token
    assert timeline.starts([105.0, 150.0, 156.0, 170.0], 105.0) == [(166.0, 11), (166.0, 11), (166.0, 11), (180.0, 11)]


def test_stale_draft_takes_no_time() -> None:
    timeline = _timeline()
    first = _sent(timeline, 100.0, 7, 3)
    second = _sent(timeline, 101.0, 7, 5)
    for position in (7, 8, 9):
        timeline.committed(position, position)
    assert not first.stale and not second.stale
    timeline.committed(10, 99)  # beyond the first draft
    assert (first.stale, second.stale) == (False, True)


def test_news_reset_the_timeline() -> None:
    timeline = _timeline()
    _start(timeline, 100.0)
    timeline.news(9, 300.0)
    assert _start(timeline, 300.0) == (310.0, 9)


@pytest.mark.parametrize("next_in", [25.0, 60.0, 1e6])
def test_verifier_self_continues_where_the_draft_is_half_a_step_away(next_in: float) -> None:
    assert _start(_timeline(self_continue=True, next_in=next_in), 100.0) == (140.0, 8)


def test_waits_tells_when_the_verifier_is_idle() -> None:
    waiting, soon, later = (
        _timeline(),
        _timeline(self_continue=True, next_in=20.0),
        _timeline(self_continue=True, next_in=60.0),
    )
    assert [waiting.waits(now) for now in (100.0, 1e4)] == [True, True]
    assert [soon.waits(now) for now in (100.0, 124.0, 126.0)] == [True, True, False]  # until 90 + 20 + 25
    assert [later.waits(now) for now in (100.0, 129.0, 131.0, 164.0, 166.0)] == [False, False, True, True, False]
    _sent(soon, 100.0, 7, 0)
    assert not soon.waits(101.0)


@given(
    until=st.integers(-50, 300),
    known=st.integers(-50, 300) | st.just(-inf),
    draft_due=st.integers(-100, 200) | st.just(1e6),
)
def test_self_continuation_equals_a_step_by_step_simulation(until: int, known: float, draft_due: float) -> None:
    """The verifier is free at 0 and self-continues, except while it waits for the draft."""
    timeline = VerifierTimeline(Costs(), True, 0)  # type: ignore[arg-type]
    timeline.news(0, 10.0)
    timeline.expects(draft_due, 10.0)
    free, position = 0.0, 0
    while free < until:
        begins = draft_due + 25.0 if abs(free - draft_due) < 25.0 else free
        if until <= begins:
            break
        free, position = max(begins + 50.0, known if not position else -inf), position + 1
    found = timeline.starts([until - 10.0], known + 10.0)[0]
    assert found.at == pytest.approx(max(free, until)) and found.position == position


def test_the_next_pass_reads_the_forced_tokens() -> None:
    timeline = _timeline()
    timeline.news(12, 100.0, forced=5)
    _sent(timeline, 100.0, 12, 3)  # arrives at 110, is judged with them at 110 + 66
    assert _start(timeline, 105.0) == (176.0, 16)
    _sent(timeline, 120.0, 12, 6)  # two tokens beyond the first draft and its bonus token, and nothing forced: 176 + 54
    assert _start(timeline, 130.0) == (230.0, 19)
