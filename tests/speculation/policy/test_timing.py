"""What things take: estimates that follow what is measured, and are not carried away by a hiccup."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculation.policy.timing import LatencyModel

MS = st.floats(0.0, 1e4)


def test_the_link_is_what_the_verifier_does_not_account_for() -> None:
    times = LatencyModel()
    times.exchanged(80.0, 10.0, 45.0)
    assert times.link == 25.0


def test_a_verifier_that_accounts_for_too_much_makes_no_link_of_negative_length() -> None:
    times = LatencyModel()
    times.exchanged(80.0, 10.0, 90.0)
    assert times.link == 0.0


def test_spikes_do_not_lengthen_the_link() -> None:
    times = LatencyModel()
    for number in range(40):
        times.exchanged(20.0 if number % 3 else 300.0, 0.0, 0.0)
        assert times.link == 20.0 or number == 0


def test_a_link_that_changed_is_noticed_within_some_exchanges() -> None:
    times = LatencyModel()
    for milliseconds in (*[20.0] * 50, *[90.0] * 24):
        times.exchanged(milliseconds, 0.0, 0.0)
    assert times.link == 90.0
    for _ in range(8):
        times.exchanged(5.0, 0.0, 0.0)
    assert times.link == 5.0, "a way that became shorter is believed sooner"


def test_before_anything_was_measured_all_is_next_to_nothing_and_nothing_is_free() -> None:
    times = LatencyModel()
    assert times.link == times.queue == 0.0
    assert 0.0 < times.draft() <= times.draft(6) < 0.01 and 0.0 < times.verify(0) <= times.verify(16) < 0.01


def test_a_further_row_is_guessed_at_half_a_draft_until_it_is_measured() -> None:
    times = LatencyModel()
    times.drafted(1, 8.0)
    assert (times.draft(), times.draft(2), times.draft(4)) == (8.0, 12.0, 20.0)
    times.drafted(4, 11.0)
    assert (times.draft(2), times.draft(4)) == (9.0, 11.0)


def test_wide_steps_tell_what_a_draft_may_take_while_there_is_no_narrow_one() -> None:
    times = LatencyModel()
    assert not times.draft_known
    times.drafted(3, 16.0)
    assert times.draft_known and times.draft() == 8.0 and times.draft(3) == 16.0


def test_the_less_even_passes_are_the_earlier_a_guess_is_to_be() -> None:
    even, uneven = LatencyModel(), LatencyModel()
    for number in range(40):
        even.verified(2, 40.0)
        uneven.verified(2, 40.0 + 5.0 * (-1) ** number)
    assert even.margin == pytest.approx(2.0, abs=0.1) and 9.0 < uneven.margin < 15.0
    for number in range(40):
        uneven.verified(2, 1.0 + 79.0 * (number % 2))
    assert uneven.margin == uneven.verify(0) / 2, "never so early that the step before the last is meant"


def test_a_wide_step_that_took_no_longer_makes_rows_free_and_not_cheaper_than_that() -> None:
    times = LatencyModel()
    times.drafted(1, 8.0)
    times.drafted(3, 5.0)
    assert times.draft(3) == times.draft(1) == 8.0


def test_drafts_that_become_slower_are_followed() -> None:
    times = LatencyModel()
    for milliseconds in (*[2.0] * 30, *[10.0] * 30):
        times.drafted(1, milliseconds)
    assert times.draft() == pytest.approx(10.0, rel=0.06)


def test_the_queue_is_a_mean_of_the_last_waits() -> None:
    times = LatencyModel()
    for milliseconds in (0.0, 40.0) * 20:
        times.queued(milliseconds)
    assert 15.0 < times.queue < 25.0


def test_passes_are_at_first_what_the_verifier_says() -> None:
    said = [30.0, 35.0, 56.0, 58.0, 79.0]
    times = LatencyModel(said)
    assert [times.verify(drafts) for drafts in range(5)] == pytest.approx(said)


def test_passes_that_take_longer_than_was_said_are_believed() -> None:
    times = LatencyModel([30.0, 35.0, 40.0])
    for _ in range(40):
        for drafts in range(3):
            times.verified(drafts, 1.5 * (30.0 + 5.0 * drafts))
    assert [times.verify(drafts) for drafts in range(3)] == pytest.approx([45.0, 52.5, 60.0], rel=0.02)


def test_passes_never_seen_are_thought_to_lie_on_a_line() -> None:
    times = LatencyModel()
    for _ in range(10):
        for drafts in (0, 4, 8):
            times.verified(drafts, 20.0 + 3.0 * drafts)
    assert [times.verify(drafts) for drafts in (2, 6, 12)] == pytest.approx([26.0, 38.0, 56.0], rel=0.02)


@given(said=st.lists(MS, max_size=5), events=st.lists(st.tuples(st.integers(0, 8), MS), max_size=20))
def test_whatever_is_measured_nothing_takes_no_time_and_more_never_takes_less(
    said: list[float], events: list[tuple[int, float]]
) -> None:
    times = LatencyModel(said)
    for count, milliseconds in events:
        times.verified(count, milliseconds)
        times.drafted(1 + count, milliseconds)
        times.exchanged(milliseconds, 0.0, milliseconds / 2)
        times.queued(milliseconds)
    assert times.link >= 0.0 and times.queue >= 0.0
    assert all(times.verify(drafts) > 0.0 for drafts in range(20))
    assert 0.0 < times.draft(1) <= times.draft(2) <= times.draft(6)


def test_the_first_pass_tells_how_fast_the_verifier_is_now() -> None:
    times = LatencyModel([30.0, 35.0, 56.0, 58.0, 79.0])
    times.verified(1, 70.0)
    assert [times.verify(drafts) for drafts in range(5)] == pytest.approx([60.0, 70.0, 112.0, 116.0, 158.0], rel=0.05)


@pytest.mark.parametrize("sessions", [1, 8, 32])
def test_a_draft_costs_what_it_holds_up_all_who_share_the_pass(sessions: int) -> None:
    times = LatencyModel([30.0 + 0.5 * tokens for tokens in range(17)])
    took = 30.0 + 0.5 * 3 * sessions  # they all send three
    for _ in range(60):
        times.verified(3, took)
        times.shared(3, sessions)
    assert times.cost(3) == pytest.approx(took, rel=0.02)
    assert times.cost(8) - times.cost(3) == pytest.approx(2.5 * sessions, rel=0.3)
    assert times.cost(0) == pytest.approx(30.0, rel=0.15)
