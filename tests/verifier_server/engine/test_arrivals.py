"""When the next request of a session is due."""

import pytest

from specpair.speculation.policy.schedule import NOT_SOON
from verifier_server.engine.arrivals import ArrivalEstimator


def after(gaps: list[float], stated: float | None = None) -> ArrivalEstimator:
    """An estimator that has seen these gaps between answers and requests. The last answer was given at 100."""
    arrivals, now = ArrivalEstimator(), 100.0 - sum(gaps)
    for gap in gaps:
        arrivals.answered(now, stated)
        now += gap
        arrivals.arrived(now)
    arrivals.answered(now, stated)
    return arrivals


def test_nothing_is_known_before_the_first_request() -> None:
    arrivals = ArrivalEstimator()
    assert (arrivals.soonest, arrivals.latest) == (None, None)
    arrivals.arrived(1.0)  # the prefill
    assert (arrivals.soonest, arrivals.latest) == (None, None)
    arrivals.answered(2.0, None)
    assert (arrivals.soonest, arrivals.latest) == (None, None)


def test_a_gap_lasts_from_the_answer_to_the_next_arrival() -> None:
    arrivals = after([0.25])
    assert (arrivals.soonest, arrivals.latest) == (100.25, 100.25)


def test_a_single_outlier_changes_nothing() -> None:
    regular = [0.25] * 6
    for outlier in ([30.0], [0.0], [30.0, 0.0]):
        arrivals = after([*regular, *outlier][:8])
        assert (arrivals.soonest, arrivals.latest) == (100.25, 100.25)


def test_a_new_interval_is_learnt_within_the_remembered_gaps() -> None:
    assert after([1.0] * 20 + [0.25] * 7).latest == 100.25
    assert after([1.0] * 20 + [0.25] * 4).soonest == 100.25


def test_varying_gaps_widen_the_expected_range() -> None:
    arrivals = after([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    assert arrivals.soonest == pytest.approx(100.2)
    assert arrivals.latest == pytest.approx(100.7 + 0.25)


def test_a_stated_gap_sets_the_soonest_arrival() -> None:
    arrivals = after([], stated=0.125)
    assert (arrivals.soonest, arrivals.latest) == (100.125, 100.125)
    late = after([0.25, 0.375], stated=0.125)
    assert late.soonest == 100.125, "as stated"
    assert late.latest == 100.125 + 0.25 + 0.125 / 2, "stated, and later by the measured delay"


def test_measured_and_stated_gaps_are_not_mixed() -> None:
    arrivals = after([0.5] * 8)
    arrivals.answered(100.0, 0.125)
    assert (arrivals.soonest, arrivals.latest) == (100.125, 100.125)
    arrivals.answered(101.0, None)
    assert (arrivals.soonest, arrivals.latest) == (101.5, 101.5)


def test_that_nothing_should_wait_is_no_measure_of_a_gap() -> None:
    arrivals, now = ArrivalEstimator(), 0.0
    for stated, gap in [(NOT_SOON, 0.1), (NOT_SOON, 0.1), (0.02, 0.03), (NOT_SOON, 0.1), (0.02, 0.03), (NOT_SOON, 0.1)]:
        arrivals.answered(now, stated)
        assert stated is not NOT_SOON or arrivals.soonest is None, "nothing waits for it"
        now += gap
        arrivals.arrived(now)
    arrivals.answered(now, 0.02)
    assert arrivals.soonest == pytest.approx(now + 0.02)
    assert arrivals.latest == pytest.approx(now + 0.03)
    arrivals.answered(now, NOT_SOON)
    assert arrivals.soonest is None
    assert arrivals.latest == pytest.approx(now + 0.1)


def test_a_client_that_says_only_not_to_wait_has_no_latest_arrival() -> None:
    arrivals = ArrivalEstimator()
    arrivals.answered(5.0, NOT_SOON)
    assert (arrivals.soonest, arrivals.latest) == (None, None), "and its slot is not kept until NOT_SOON is over"


def test_nothing_is_due_while_a_request_waits_or_after_the_end() -> None:
    arrivals = after([0.25])
    arrivals.arrived(100.25)
    assert (arrivals.soonest, arrivals.latest) == (None, None)
    arrivals.answered(100.5, None)
    arrivals.over()
    assert (arrivals.soonest, arrivals.latest) == (None, None)


def test_a_request_that_came_before_the_answer_is_a_gap_of_zero() -> None:
    arrivals = ArrivalEstimator()
    arrivals.answered(10.0, None)
    arrivals.arrived(9.5)  # sent while the previous request was judged
    arrivals.answered(11.0, None)
    assert (arrivals.soonest, arrivals.latest) == (11.0, 11.0)


def test_a_request_sent_before_the_last_answer_was_known_changes_nothing() -> None:
    arrivals = after([0.25] * 3, stated=0.2)
    expected = arrivals.soonest, arrivals.latest
    arrivals.arrived(100.01)
    assert arrivals.soonest is None
    arrivals.overtaken()
    assert (arrivals.soonest, arrivals.latest) == expected
    arrivals.overtaken()  # a second one of this kind
    assert (arrivals.soonest, arrivals.latest) == expected
