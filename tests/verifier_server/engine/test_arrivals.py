"""When the next guess of a session is expected."""

import pytest

from verifier_server.engine.arrivals import ArrivalEstimator


def after(gaps: list[float], stated: float | None = None) -> ArrivalEstimator:
    """A session whose guesses came so long after the answers before, the last of which was given at 100."""
    arrivals, now = ArrivalEstimator(), 100.0 - sum(gaps)
    for gap in gaps:
        arrivals.answered(now, stated)
        now += gap
        arrivals.arrived(now)
    arrivals.answered(now, stated)
    return arrivals


def test_nothing_is_known_before_the_first_guess() -> None:
    arrivals = ArrivalEstimator()
    assert (arrivals.soonest, arrivals.latest) == (None, None)
    arrivals.arrived(1.0)  # the prefill
    assert (arrivals.soonest, arrivals.latest) == (None, None)
    arrivals.answered(2.0, None)
    assert (arrivals.soonest, arrivals.latest) == (None, None)


def test_gaps_are_measured_from_the_answer_to_the_next_arrival() -> None:
    arrivals = after([0.25])
    assert (arrivals.soonest, arrivals.latest) == (100.25, 100.25)


def test_one_odd_gap_changes_nothing() -> None:
    usual = [0.25] * 6
    for odd in ([30.0], [0.0], [30.0, 0.0]):
        arrivals = after([*usual, *odd][:8])
        assert (arrivals.soonest, arrivals.latest) == (100.25, 100.25)


def test_a_new_pace_is_known_after_as_many_gaps_as_are_remembered() -> None:
    assert after([1.0] * 20 + [0.25] * 7).latest == 100.25
    assert after([1.0] * 20 + [0.25] * 4).soonest == 100.25


def test_an_unsteady_session_is_expected_early_and_waited_for_longer() -> None:
    arrivals = after([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    assert arrivals.soonest == pytest.approx(100.2)
    assert arrivals.latest == pytest.approx(100.7 + 0.25)


def test_what_the_client_says_counts() -> None:
    arrivals = after([], stated=0.125)
    assert (arrivals.soonest, arrivals.latest) == (100.125, 100.125)
    late = after([0.25, 0.375], stated=0.125)
    assert late.soonest == 100.125, "taken at its word"
    assert late.latest == 100.125 + 0.25 + 0.125 / 2, "and waited for as late as it has been"


def test_gaps_measured_and_stated_are_not_mixed() -> None:
    arrivals = after([0.5] * 8)
    arrivals.answered(100.0, 0.125)
    assert (arrivals.soonest, arrivals.latest) == (100.125, 100.125)
    arrivals.answered(101.0, None)
    assert (arrivals.soonest, arrivals.latest) == (None, None)


def test_a_guess_that_is_there_is_expected_no_more() -> None:
    arrivals = after([0.25])
    arrivals.arrived(100.25)
    assert (arrivals.soonest, arrivals.latest) == (None, None)
    arrivals.answered(100.5, None)
    arrivals.over()
    assert (arrivals.soonest, arrivals.latest) == (None, None)


def test_a_guess_that_came_before_the_answer_came_at_once() -> None:
    arrivals = ArrivalEstimator()
    arrivals.answered(10.0, None)
    arrivals.arrived(9.5)  # on the way while the one before was judged
    arrivals.answered(11.0, None)
    assert (arrivals.soonest, arrivals.latest) == (11.0, 11.0)


def test_a_guess_that_was_sent_before_the_last_answer_was_known_changes_nothing() -> None:
    arrivals = after([0.25] * 3, stated=0.2)
    expected = arrivals.soonest, arrivals.latest
    arrivals.arrived(100.01)
    assert arrivals.soonest is None
    arrivals.overtaken()
    assert (arrivals.soonest, arrivals.latest) == expected
    arrivals.overtaken()  # it had come while the one before was being judged
    assert (arrivals.soonest, arrivals.latest) == expected
