"""The rules by which requests are repeated: pauses and limits, for every error and every duration of an attempt."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.errors import BadReply, ConnectionLost, VerifierTimeout, VerifierUnreachable
from drafter_client.http import retries
from specpair.protocol.errors import (
    EngineError,
    InvalidRequest,
    Overloaded,
    RateLimited,
    ShuttingDown,
    SpecPairError,
    UnknownSession,
)
from tests.stand_ins.clock import Time

BROKEN: list[Exception] = [ConnectionLost("the cable"), VerifierUnreachable("no answer")]
FINAL: list[Exception] = [VerifierTimeout("silence"), BadReply("no JSON"), InvalidRequest("what"), ZeroDivisionError()]
OTHERS: list[Exception] = [*FINAL, UnknownSession("gone"), ShuttingDown("ends")]

seconds_each = st.lists(st.floats(0.0, 20.0), min_size=1, max_size=8)
seconds = st.floats(0.0, 1000.0)
failures = st.integers(1, 12)


def _until_given_up(error: Exception, pause_after: Any, durations: list[float]) -> Time:
    """Repeat a request that fails with `error` after so many seconds each time, until that is raised."""
    time, left = Time(), list(durations)

    def request() -> None:
        time.now += left.pop(0) if len(left) > 1 else left[0]
        raise error

    with pytest.raises(type(error)) as caught:
        retries.repeat(request, pause_after, time.sleep, time.clock)
    assert caught.value is error
    return time


@given(st.sampled_from(BROKEN), seconds_each, st.booleans())
def test_a_broken_connection_is_retried_after_doubled_pauses(
    error: Exception, durations: list[float], outage_follows: bool
) -> None:
    def pause_after(error: Exception, attempts: int, seconds: float) -> retries.Pause:
        return retries.after_broken_connection(error, attempts, seconds, reached=True, outage_follows=outage_follows)

    time = _until_given_up(error, pause_after, durations)
    pauses = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    assert time.slept == pytest.approx((pauses[:3] if outage_follows else pauses)[: len(time.slept)])
    if not outage_follows:
        assert len(time.slept) == 6
    elif len(time.slept) < 3:  # attempts that take long end the retries before: an outage is waited for instead
        assert time.now > 1.0


@given(st.sampled_from(BROKEN), st.integers(1, 10), seconds, st.booleans())
def test_a_verifier_never_reached_is_not_retried(
    error: Exception, attempts: int, seconds: float, outage_follows: bool
) -> None:
    assert (
        retries.after_broken_connection(error, attempts, seconds, reached=False, outage_follows=outage_follows) is None
    )


@given(st.sampled_from(OTHERS), st.integers(1, 10), seconds)
def test_other_errors_are_raised_at_once(error: Exception, attempts: int, seconds: float) -> None:
    assert retries.after_broken_connection(error, attempts, seconds, reached=True, outage_follows=False) is None
    assert retries.after_overload(error, attempts, seconds) is None


@given(st.sampled_from([Overloaded, RateLimited]), st.floats(0.5, 100.0), seconds_each)
def test_an_overload_and_a_limit_of_the_key_are_retried_for_a_minute(
    kind: type[SpecPairError], wait: float, durations: list[float]
) -> None:
    time = _until_given_up(kind("full", retry_after=wait), retries.after_overload, durations)
    assert set(time.slept) <= {wait}
    assert sum(time.slept) <= 60.0
    assert time.now + wait > 60.0, "it is given up no sooner than the next attempt would be too late"


def test_a_limit_of_the_key_is_waited_for_like_an_overload() -> None:
    busy, limited = Overloaded("full", retry_after=9), RateLimited("slow", retry_after=9)
    assert retries.is_outage(limited) and not retries.is_checked_at_once(limited, 0)
    for begun in (False, True):
        patience = retries.outage_patience(300.0, limited, begun)
        assert patience == retries.outage_patience(300.0, busy, begun) == (300.0 if begun else 60.0)
        assert retries.before_health_check(limited, 0, 5.0, patience) == 9.0


@given(st.integers(1, 10), seconds)
def test_an_overload_without_a_pause_is_final(attempts: int, seconds: float) -> None:
    assert retries.after_overload(Overloaded("full"), attempts, seconds) is None


@given(st.sampled_from([*BROKEN, EngineError("broken"), Overloaded("full", retry_after=9)]), failures, seconds, seconds)
def test_no_pause_in_an_outage_exceeds_the_patience(
    error: Exception, failures: int, waited: float, patience: float
) -> None:
    for pause in (
        retries.before_health_check(error, failures, waited, patience),
        retries.between_health_checks(waited, patience),
    ):
        if pause is None:
            continue
        assert 0.0 < pause and waited < patience and waited + pause <= patience + 1e-9
    if waited >= patience:
        assert retries.between_health_checks(waited, patience) is None
        assert retries.before_health_check(error, failures, waited, patience) is None


@given(st.sampled_from(BROKEN), failures)
def test_a_ready_verifier_that_fails_is_left_alone_for_longer_and_longer(error: Exception, failures: int) -> None:
    pause = retries.before_health_check(error, failures, 0.0, 300.0)
    assert pause == ([1.0, 2.0, 4.0, 5.0, 5.0, 5.0][failures - 1] if failures <= 6 else None)
    assert not retries.is_checked_at_once(error, failures) and retries.is_checked_at_once(error, 0)


@given(seconds, st.booleans(), st.sampled_from([*BROKEN, Overloaded("full", retry_after=9)]))
def test_a_text_that_is_not_begun_waits_a_minute_at_most_for_a_busy_verifier(
    patience: float, begun: bool, error: Exception
) -> None:
    found = retries.outage_patience(patience, error, begun)
    assert found == (min(patience, 60.0) if isinstance(error, Overloaded) and not begun else patience)


@given(st.integers(0, 8), st.booleans())
def test_only_an_engine_error_of_a_verifier_that_stayed_ready_is_a_fault(failures: int, away: bool) -> None:
    assert retries.is_engine_fault(EngineError("broken"), failures, away) is (failures == 0 and not away)
    assert not any(retries.is_engine_fault(error, failures, away) for error in [*BROKEN, *OTHERS])


@given(st.sampled_from(BROKEN + OTHERS), st.booleans())
def test_only_a_connection_lost_before_any_token_may_be_an_idle_one(error: Exception, first: bool) -> None:
    assert retries.may_be_idle_close(error, first) is (first and isinstance(error, ConnectionLost))


@given(seconds, seconds)
def test_loading_is_waited_for_until_patience_is_over(waited: float, patience: float) -> None:
    assert retries.while_loading(waited, patience) == (None if waited > patience else 0.25)


@given(st.lists(st.tuples(st.sampled_from(BROKEN), st.floats(0.0, 5.0)), max_size=6))
def test_a_request_is_repeated_until_it_succeeds(failing: list[tuple[Exception, float]]) -> None:
    time, left = Time(), list(failing)
    seen: list[tuple[Exception, int, float]] = []

    def request() -> str:
        if left:
            raise left[0][0]
        return "the result"

    def pause_after(error: Exception, attempts: int, seconds: float) -> float:
        seen.append((error, attempts, seconds))
        return left.pop(0)[1]

    assert retries.repeat(request, pause_after, time.sleep, time.clock) == "the result"
    assert time.slept == [pause for _, pause in failing]
    assert [(error, attempts) for error, attempts, _ in seen] == [
        (error, number) for number, (error, _) in enumerate(failing, 1)
    ]
    assert [waited for *_, waited in seen] == pytest.approx([sum(time.slept[:n]) for n in range(len(failing))])
