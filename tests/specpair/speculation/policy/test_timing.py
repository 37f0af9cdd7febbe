"""Time estimates follow the measurements and resist spikes, and passes start when computed by hand; in any unit."""

from math import inf, isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.draft import Draft
from specpair.speculation.drafting.tree import TreeNode
from specpair.speculation.policy.cost_by_width import LEAST, MOST, CostByWidth
from specpair.speculation.policy.draft_length import MAX_AUTO, prospects
from specpair.speculation.policy.experience import Estimates, Experience
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms, RejectionPolicy
from specpair.speculation.policy.timing import LatencyModel
from specpair.speculation.policy.verifier_timeline import InFlightDraft, PassStart, VerifierTimeline
from specpair.speculation.text_options import TextSpec


def test_link_is_the_exchange_without_the_verifiers_time() -> None:
    times = LatencyModel()
    times.exchanged(80.0, 10.0, 45.0)
    assert times.link == 25.0


@pytest.mark.parametrize(("tokens", "slope"), [(40, 0.0), (300, 0.1), (600, 0.1)])
def test_draft_token_costs_what_it_adds_to_a_pass_as_wide_as_the_shared_one(tokens: int, slope: float) -> None:
    flat = 100  # tokens up to which passes take as long
    times = LatencyModel([10.0 + 0.1 * max(0, width - flat) for width in range(1, 513)])
    for _ in range(20):
        times.verified(2, 10.0)
        times.shared(2, 10, tokens)
    assert times.cost(3) - times.cost(2) == pytest.approx(10 * slope)
    assert times.cost(2) - times.cost(1) == pytest.approx(10 * slope)


def test_margin_grows_with_the_spread_of_passes() -> None:
    even, uneven = LatencyModel(), LatencyModel()
    for number in range(40):
        even.verified(2, 0.04)
        uneven.verified(2, 0.04 + 0.005 * (-1) ** number)
    assert even.margin == pytest.approx(0.002, abs=1e-4) and 0.009 < uneven.margin < 0.015
    for number in range(40):
        uneven.verified(2, 0.001 + 0.079 * (number % 2))
    assert uneven.margin == uneven.verify(0) / 2, "never more than half a step"


def test_a_step_of_the_verifier_by_itself_is_a_pass_unless_its_head_predicts() -> None:
    times = LatencyModel([0.05 + 0.001 * more for more in range(17)])
    for _ in range(50):
        times.self_continued(0.05, 0, 1, 0)
    assert times.by_itself() == pytest.approx((0.05, 1.0), rel=0.01)
    assert times.by_itself(4)[0] == times.verify(4)
    before = times.verify(0)
    for _ in range(200):
        times.self_continued(0.07, 0, 3, 3)
    assert times.by_itself() == pytest.approx((0.07, 3.0), rel=0.01)
    assert times.by_itself(4)[0] == pytest.approx(0.07 + times.verify(4) - before, rel=0.01)
    assert times.verify(0) == before, "a step with the head says nothing about passes"


def test_forced_tokens_do_not_count_as_time_of_the_head() -> None:
    times = LatencyModel([0.05 + 0.01 * more for more in range(17)])
    for _ in range(200):
        times.self_continued(0.06 + times.verify(5) - times.verify(0), 5, 2, 1)
    assert times.by_itself()[0] == pytest.approx(0.06, rel=0.01)


@pytest.mark.parametrize("sessions", [1, 8, 32])
def test_draft_token_costs_its_delay_of_all_sessions_in_the_pass(sessions: int) -> None:
    times = LatencyModel([30.0 + 0.5 * tokens for tokens in range(17)])
    took = 30.0 + 0.5 * 3 * sessions  # each sends three
    for _ in range(60):
        times.verified(3, took)
        times.shared(3, sessions)
    assert times.cost(3) == pytest.approx(took, rel=0.02)
    assert times.cost(8) - times.cost(3) == pytest.approx(2.5 * sessions, rel=0.3)
    assert times.cost(0) == pytest.approx(30.0, rel=0.15)


NOISY = [(1, 0.150), (2, 0.219), (4, 0.357), (8, 0.814), (9, 0.592)]
NONSENSE = [0.0, -1.0, nan, inf, -inf, 1e300, 5e-324]
SECONDS = st.floats(1e-9, 1e5) | st.sampled_from(NONSENSE)
POINTS = st.lists(st.tuples(st.integers(1, 600), SECONDS), max_size=20)
ANY_TIMES = st.lists(SECONDS, max_size=40)
WIDTHS = [*range(1, 100), 128, 600, 601, 4096, 10**6]


@given(points=POINTS)
def test_costs_rise_and_are_positive_and_finite(points: list[tuple[int, float]]) -> None:
    cost = CostByWidth(points)
    found = [cost.at(width) for width in WIDTHS]
    assert found == sorted(found) and found[0] >= LEAST and isfinite(found[-1])
    measured = [seconds for _, seconds in points if isfinite(seconds) and seconds > 0.0]
    low, high = min(measured, default=LEAST), max(measured, default=LEAST)
    assert max(cost, default=low) <= min(max(high, LEAST), MOST) * (1 + 1e-9)
    assert found[0] >= min(max(low, LEAST), MOST) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (NOISY, {1: 0.150, 3: 0.288, 8: 0.703, 9: 0.703, 10: 0.703 + 0.0865, 2009: 0.703 + 2000 * 0.0865}),
        ([(4, 2.0), (8, 4.0)], {1: 2.0, 4: 2.0, 6: 3.0, 12: 6.0}),
        ([(1, 1.0), (2, 1.0)], {3: 1.0, 5000: 1.0}),
        ([(8, 2.0)], {1: 2.0, 8: 2.0, 16: 4.0}),
        ([(1, 5.0), (2, 1.0), (3, 3.0)], {1: 3.0, 2: 3.0, 3: 3.0, 4: 3.0}),
        ([(1, 1.0), (2, nan), (3, 0.0), (4, -1.0), (5, inf), (6, 2.0), (6, 9.0)], {2: 1.2, 6: 2.0, 7: 2.2}),
        ([], {1: LEAST, 5000: LEAST}),
        ([(0, 1.0), (-3, 2.0), (2, 1.0), (4, 1.5)], {1: 1.0, 3: 1.25}),
    ],
)
def test_between_measured_widths_are_lines_and_beyond_them_the_steepest(
    points: list[tuple[int, float]], expected: dict[int, float]
) -> None:
    cost = CostByWidth(points)
    assert {width: cost.at(width) for width in expected} == pytest.approx(expected)


@given(
    times=ANY_TIMES,
    passes=st.lists(st.tuples(st.integers(0, 96), st.floats(0.0, 1e3)), max_size=20),
    shared=st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)),
    each=st.floats(0.0, 1.0),
    overlap=st.booleans(),
)
def test_the_draft_length_is_chosen_by_any_times_that_a_verifier_may_tell(
    times: list[float], passes: list[tuple[int, float]], shared: tuple[int, int], each: float, overlap: bool
) -> None:
    latencies = LatencyModel(times)
    for judged, seconds in passes:
        latencies.verified(judged, seconds)
        latencies.shared(judged, *shared)
    verifies = [latencies.verify(drafts) for drafts in range(97)]
    assert verifies == sorted(verifies) and verifies[0] > 0.0
    costs = [latencies.cost(drafts) for drafts in range(97)]
    assert costs == sorted(costs) and costs[0] > 0.0 and isfinite(costs[-1])
    found = prospects(latencies, [each**k for k in range(MAX_AUTO + 2)], Mechanisms() if overlap else LOCKSTEP, 0.5)
    assert 0 <= found.length <= MAX_AUTO and 0.0 < found.rate < inf and 0.0 < found.price < inf
    assert found.length == 0 or each > 0.0


GREEDY = TextSpec(seed=1)
SAMPLED = TextSpec(seed=1, temperature=0.8)


def _reject(estimates: Estimates, count: int = 20) -> None:
    for _ in range(count):
        estimates.acceptance.learn(TreeNode(1, 0.9, None), False)
    estimates.acceptance.fit()


def test_outcomes_are_kept_for_texts_of_the_same_kind() -> None:
    experience = Experience()
    with experience.text(GREEDY) as first:
        fresh = first.acceptance.model.typical
        _reject(first)
    with experience.text(SAMPLED) as other, experience.text(TextSpec(strategy=Strategy.GREEDY)) as another:
        assert another.acceptance.model.count == other.acceptance.model.count == 0
        assert other.acceptance.model.typical == fresh
    with experience.text(TextSpec(seed=2)) as second:
        assert second.acceptance.model.typical < fresh
        assert second.acceptance.model.count == 20
        assert second.acceptance.recent == 0.0, "the last outcomes were those of another text"


def test_passes_are_known_in_all_later_texts_and_the_rest_is_measured_again() -> None:
    experience = Experience()
    with experience.text(GREEDY, [0.03, 0.031]) as first:
        assert first.latencies.verify(0) == pytest.approx(0.03)
        first.latencies.drafted(1, 0.007)
        first.latencies.exchanged(0.09, 0.005, 0.05)
        first.latencies.verified(0, 0.05)
        first.latencies.queued(0.005)
        first.latencies.shared(2, 8)
        verify = first.latencies.verify(0)
    with experience.text(SAMPLED, [0.03, 0.031]) as second:
        assert second.latencies.verify(0) == verify
        assert not second.latencies.draft_known, "one that was measured too slow would never be measured again"
        assert second.latencies.link == second.latencies.queue == 0.0
        assert not second.latencies.is_shared


def test_texts_that_are_written_together_share_what_draft_tokens_show() -> None:
    experience = Experience()
    with experience.text(GREEDY, together=True) as first, experience.text(SAMPLED, together=True) as of_another_kind:
        with experience.text(TextSpec(seed=2), together=True) as second, experience.text(GREEDY) as alone:
            _reject(second)
        assert first.acceptance is second.acceptance
        assert first.acceptance.model.count == 20 and first.latencies is not second.latencies
        assert of_another_kind.acceptance.model.count == alone.acceptance.model.count == 0
    typical = first.acceptance.model.typical
    del first, second
    with experience.text(GREEDY, together=True) as later:
        assert later.acceptance.model.typical > typical, "it is tried again, as in any later text"


class Costs:
    """Stands in for a LatencyModel with measured times."""

    link = 20.0

    def __init__(self, head: float = 0.0, tokens: float = 1.0) -> None:
        """`head`: what it adds to the time of a self-continuation step, which commits so many tokens."""
        self._head, self._tokens = head, tokens

    def verify(self, drafts: int) -> float:
        return 50.0 + 2.0 * drafts

    def by_itself(self, forced: int = 0) -> tuple[float, float]:
        return self.verify(forced) + self._head, self._tokens


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
    head=st.integers(0, 60),
    tokens=st.integers(1, 5),
)
def test_self_continuation_equals_a_step_by_step_simulation(
    until: int, known: float, draft_due: float, head: int, tokens: int
) -> None:
    """The verifier is free at 0 and self-continues, except while it waits for the draft."""
    timeline = VerifierTimeline(Costs(head, tokens), True, 0)  # type: ignore[arg-type]
    timeline.news(0, 10.0)
    timeline.expects(draft_due, 10.0)
    free, position = 0.0, 0
    while free < until:
        begins = draft_due + 25.0 if abs(free - draft_due) < 25.0 else free
        if until <= begins:
            break
        free, position = max(begins + 50.0 + head, known if not position else -inf), position + tokens
    found = timeline.starts([until - 10.0], known + 10.0)[0]
    assert found.at == pytest.approx(max(free, until)) and found.position == position


def test_the_next_pass_reads_the_forced_tokens() -> None:
    timeline = _timeline()
    timeline.news(12, 100.0, forced=5)
    _sent(timeline, 100.0, 12, 3)  # arrives at 110, is judged with them at 110 + 66
    assert _start(timeline, 105.0) == (176.0, 16)
    _sent(timeline, 120.0, 12, 6)  # two tokens beyond the first draft and its bonus token, and nothing forced: 176 + 54
    assert _start(timeline, 130.0) == (230.0, 19)


def test_the_first_step_reads_the_forced_tokens_and_the_next_message_is_awaited_so_long() -> None:
    timeline = VerifierTimeline(Costs(30.0, 3.0), True, 3)  # type: ignore[arg-type]
    timeline.news(12, 100.0, forced=5)
    timeline.expects(None, 100.0)
    assert _start(timeline, 81.0) == (180.0, 15), "90, and 50 + 2 * 5 + 30 of the first step"
    assert _start(timeline, 175.0) == (260.0, 18)
    assert [timeline.is_late(now) for now in (214.0, 216.0)] == [False, True], "half a step after 190"
