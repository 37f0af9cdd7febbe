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


def test_idle_verifier_starts_when_a_draft_arrives() -> None:
    assert _timeline().starts([100.0, 130.0], 100.0) == [(110.0, 7), (140.0, 7)]


def test_pass_starts_when_the_draft_in_flight_is_judged() -> None:
    timeline = _timeline()
    _sent(timeline, 100.0, 7, 3)  # arrives at 110, is judged at 166: three draft tokens and a bonus token
    assert timeline.starts([105.0, 150.0, 156.0, 170.0], 105.0) == [(166.0, 11), (166.0, 11), (166.0, 11), (180.0, 11)]


def test_drafts_that_continue_each_other_are_judged_in_turn() -> None:
    timeline = _timeline()
    _sent(timeline, 100.0, 7, 3)
    _sent(timeline, 120.0, 7, 6)  # two tokens beyond the first draft and its bonus token: 166 + 54
    assert _start(timeline, 130.0) == (220.0, 14)
    _sent(timeline, 140.0, 7, 12)  # five beyond the second: 220 + 60
    assert _start(timeline, 141.0) == (280.0, 20)


def test_draft_contained_in_an_earlier_one_takes_no_time() -> None:
    timeline = _timeline()
    _sent(timeline, 100.0, 7, 3)
    _sent(timeline, 101.0, 7, 2)
    assert _start(timeline, 102.0) == (166.0, 11)


def test_empty_draft_is_one_plain_step() -> None:
    timeline = _timeline()
    _sent(timeline, 100.0, 7, 0)
    assert _start(timeline, 100.0) == (160.0, 8)


def test_overdue_pass_may_end_at_any_moment() -> None:
    timeline = _timeline()
    _sent(timeline, 100.0, 7, 3)  # its response was due at 176
    assert _start(timeline, 200.0) == (210.0, 11)
    assert timeline.starts([201.0, 240.0], 200.0) == [(211.0, 11), (250.0, 11)]


def test_stale_draft_takes_no_time() -> None:
    timeline = _timeline()
    first = _sent(timeline, 100.0, 7, 3)
    second = _sent(timeline, 101.0, 7, 5)
    for position in (7, 8, 9):
        timeline.committed(position, position)
    assert not first.stale and not second.stale
    timeline.committed(10, 99)  # beyond the first draft
    assert (first.stale, second.stale) == (False, True)


def test_draft_is_stale_where_its_first_token_is_another() -> None:
    timeline = _timeline()
    first = _sent(timeline, 100.0, 7, 3)
    timeline.committed(7, 99)
    assert first.stale and _start(timeline, 102.0) == (112.0, 7)


def test_answered_draft_is_no_longer_in_flight() -> None:
    timeline = _timeline()
    in_flight_draft = _sent(timeline, 100.0, 7, 3)
    assert timeline.drafts_in_flight == [in_flight_draft]
    timeline.arrived(in_flight_draft)
    assert timeline.drafts_in_flight == [] and _start(timeline, 102.0) == (112.0, 7)


def test_news_reset_the_timeline() -> None:
    timeline = _timeline()
    _start(timeline, 100.0)
    timeline.news(9, 300.0)
    assert _start(timeline, 300.0) == (310.0, 9)


def test_draft_waits_for_the_end_of_a_self_continuation_step() -> None:
    """Steps end at 140, 190, 240, …"""
    starts = _timeline(self_continue=True).starts([100.0, 130.0, 130.5, 180.0, 200.0], 100.0)
    assert starts == [(140.0, 8), (140.0, 8), (190.0, 9), (190.0, 9), (240.0, 10)]


def test_verifier_waits_for_an_announced_draft_and_half_a_step_longer() -> None:
    timeline = _timeline(self_continue=True, next_in=20.0)  # until 90 + 20 + 25
    assert timeline.starts([100.0, 125.0, 126.0], 100.0) == [(110.0, 7), (135.0, 7), (185.0, 8)]


@pytest.mark.parametrize("next_in", [25.0, 60.0, 1e6])
def test_verifier_self_continues_where_the_draft_is_half_a_step_away(next_in: float) -> None:
    assert _start(_timeline(self_continue=True, next_in=next_in), 100.0) == (140.0, 8)


def test_announcement_in_the_prefill_request_counts_from_the_start() -> None:
    timeline = VerifierTimeline(Costs(), True, 3)  # type: ignore[arg-type]
    timeline.expects(24.0, 0.0)
    assert timeline.starts([0.0, 28.0, 30.0], 0.0) == [(10.0, 3), (38.0, 3), (89.0, 4)]


def test_verifier_waits_half_a_step_after_an_accepted_draft() -> None:
    timeline = _timeline(self_continue=True)
    _sent(timeline, 100.0, 7, 3)  # a step ends at 140 with the first draft token; two remain: until 194
    assert timeline.starts([110.0, 209.0, 210.0], 110.0) == [(194.0, 11), (219.0, 11), (269.0, 12)]


def test_draft_overtaken_by_self_continuation_takes_no_time() -> None:
    timeline = _timeline(self_continue=True)
    _sent(timeline, 101.0, 7, 0)  # asks for one step, which has begun at 111
    assert _start(timeline, 110.0) == (140.0, 8)


def test_overdue_self_continuation_step_may_end_at_any_moment() -> None:
    """By 200 there is no message of the step that was due to end at 140: it may end at any moment, with one token."""
    assert _start(_timeline(self_continue=True), 200.0) == (240.0, 9)
    assert _timeline(self_continue=True).starts([180.0], 200.0) == [(190.0, 8)]


def test_draft_states_whether_the_verifier_self_continues() -> None:
    """One draft makes the verifier wait, the next lets it self-continue. A step that has begun is not undone."""
    timeline = _timeline(self_continue=True)
    waits = _sent(timeline, 100.0, 7, 3)
    waits.policy = waits.policy._replace(self_continue=False)
    assert timeline.starts([110.0, 400.0], 110.0) == [(194.0, 11), (410.0, 11)]
    on = _sent(timeline, 110.0, 7, 4)
    on.policy = on.policy._replace(self_continue=True)
    assert timeline.starts([400.0], 110.0) == [(419.0, 15)]  # 244 + 25, and three steps
    timeline.arrived(on)  # overtakes the response to the first on the way back
    timeline.arrived(waits)
    assert timeline.self_continue


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


def test_verifier_self_continues_until_half_a_step_before_the_draft() -> None:
    """A step runs from 90 to 140. The draft is expected at 150, and the verifier waits for it until 175."""
    timeline = _timeline(self_continue=True, next_in=60.0)
    sent = [100.0, 129.0, 131.0, 165.0, 166.0]
    assert timeline.starts(sent, 100.0) == [(140.0, 8), (140.0, 8), (141.0, 8), (175.0, 8), (225.0, 9)]
    timeline.news(8, 150.0)  # after its step; the draft is expected as before
    assert timeline.starts(sent[2:], 150.0) == [(141.0, 8), (175.0, 8), (225.0, 9)]


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


def test_verifier_self_continues_at_once_after_an_empty_draft() -> None:
    """An empty draft announces that none comes soon. After an accepted draft, the next one is expected."""
    empty, drafts = (_timeline(self_continue=True, next_in=20.0) for _ in range(2))
    _sent(empty, 100.0, 7, 0, next_in=1e6)  # a step from 110 to 160
    _sent(drafts, 100.0, 7, 2, next_in=1e6)  # judged from 110 to 164
    assert empty.starts([155.0], 100.0) == [(210.0, 9)]
    assert drafts.starts([159.0], 100.0) == [(169.0, 10)]


def test_verifier_is_late_when_half_a_step_overdue() -> None:
    """A self-continuation step ends at 140 and is known at 150; a response is due at 176."""
    self_continuing, asked = _timeline(self_continue=True), _timeline()
    assert [self_continuing.is_late(now) for now in (100.0, 170.0, 180.0)] == [False, False, True]
    _sent(asked, 100.0, 7, 3)
    assert [asked.is_late(now) for now in (100.0, 195.0, 205.0)] == [False, False, True]


def test_the_next_pass_reads_the_forced_tokens() -> None:
    timeline = _timeline()
    timeline.news(12, 100.0, forced=5)
    _sent(timeline, 100.0, 12, 3)  # arrives at 110, is judged with them at 110 + 66
    assert _start(timeline, 105.0) == (176.0, 16)
    _sent(timeline, 120.0, 12, 6)  # two tokens beyond the first draft and its bonus token, and nothing forced: 176 + 54
    assert _start(timeline, 130.0) == (230.0, 19)


def test_a_step_reads_the_forced_tokens_and_the_one_after_it_does_not() -> None:
    timeline = _timeline(self_continue=True)
    timeline.news(12, 100.0, forced=5)  # steps from 90 to 150, to 200, …
    assert timeline.starts([101.0, 141.0], 101.0) == [(150.0, 13), (200.0, 14)]
    assert not timeline.is_late(180.0)


def test_a_draft_that_brings_nothing_new_leaves_the_forced_tokens_unread() -> None:
    timeline = _timeline()
    timeline.news(12, 100.0, forced=5)
    _sent(timeline, 100.0, 7, 3)
    _sent(timeline, 100.0, 12, 3)
    assert _start(timeline, 105.0) == (176.0, 16)
