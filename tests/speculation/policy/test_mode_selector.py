"""Which mode writes a text: the likeliest begins; others have a turn where they could win and it is repaid."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculation.policy.mode_estimate import FUSED, REMOTE, TARGET, PairLatencies
from speculation.policy.mode_measurement import TURN, WARM_UP, ModeMeasurement
from speculation.policy.mode_selector import ModeSelector

MODES = [REMOTE, FUSED, TARGET]
PASS_MS = tuple(30.0 + 0.6 * more for more in range(17))
SHARED = {REMOTE: "draft", FUSED: "draft"}


def _choice(link_ms: float = 0.4, modes: list[str] = MODES, **options: object) -> ModeSelector:
    drafts = options.pop("drafts", SHARED)
    return ModeSelector(modes, PairLatencies(PASS_MS, link_ms, 4.0, 4.0), drafts, **options)  # type: ignore[arg-type]


def _write(choice: ModeSelector, rates: dict[str, float], tokens: int = 128, share: float = 0.75) -> dict[str, int]:
    """A text, four tokens at a time, each mode at its rate; tokens by mode, in the order in which they came."""
    by_mode: dict[str, int] = {}
    mode, stretch, accepted = choice.next(tokens), 0, 0.0
    for left in range(tokens, 0, -4):
        following = choice.next(left, mode, stretch) if stretch else mode
        if following != mode:
            mode, stretch = following, 0
        accepted += 4 * share if mode != TARGET else 0.0
        stood = int(accepted) if mode != TARGET else 0
        choice.measured(mode, 4, 4 / rates[mode] if stretch >= WARM_UP else 0.0, stood, 4 if mode != TARGET else 0)
        accepted -= stood
        stretch += 4
        by_mode[mode] = by_mode.get(mode, 0) + 4
    return by_mode


@pytest.mark.parametrize(("link_ms", "likeliest"), [(0.4, REMOTE), (20.0, FUSED), (60.0, FUSED)])
def test_where_all_comes_as_foreseen_one_mode_writes_all_of_a_short_text(link_ms: float, likeliest: str) -> None:
    choice = _choice(link_ms)
    rates = {mode: choice._estimates[mode].likely for mode in MODES}
    assert _write(choice, rates) == {likeliest: 128}


def test_a_mode_that_could_not_win_is_never_tried() -> None:
    choice = _choice(60.0)
    for _ in range(50):
        assert TARGET not in _write(choice, {REMOTE: 40.0, FUSED: 63.0, TARGET: 33.0})


def test_a_first_choice_that_disappoints_is_left_after_a_turn() -> None:
    """Drafts that are hardly accepted cost more than they bring, on either side."""
    choice = _choice(0.4, drafts={REMOTE: "poor", FUSED: "good"})
    by_mode = _write(choice, {REMOTE: 34.0, FUSED: 64.0, TARGET: 33.0}, share=0.2)
    assert by_mode == {REMOTE: 12, FUSED: 116}


def test_a_mode_that_is_slower_than_its_drafts_say_is_left() -> None:
    """Its draft tokens are accepted, but something else takes time: a link with little bandwidth, other work."""
    choice = _choice(0.4)
    by_mode = _write(choice, {REMOTE: 25.0, FUSED: 63.0, TARGET: 33.0}, 256)
    assert by_mode[REMOTE] <= 40 and by_mode[FUSED] >= 200


def test_what_one_mode_accepts_informs_the_other_with_the_same_draft_model() -> None:
    choice = _choice(20.0)
    assert choice.next(1000) == FUSED
    choice.measured(FUSED, 40, 0.0, 39, 40)
    assert choice.next(1000) == REMOTE
    apart = _choice(20.0, drafts={REMOTE: "small", FUSED: "large"})
    apart.measured(FUSED, 40, 0.0, 39, 40)
    assert apart.next(1000) == FUSED


def test_a_change_must_be_repaid_by_what_is_left() -> None:
    for left, mode in ((1000, REMOTE), (20, FUSED)):
        choice = _choice(20.0)
        choice.measured(FUSED, 40, 0.4, 39, 40)
        assert choice.next(left, FUSED, 40) == mode


def test_a_stretch_is_not_left_before_it_has_begun() -> None:
    choice = _choice(0.4)
    choice.measured(REMOTE, 8, 0.0, 0, 8)
    assert choice.next(1000, REMOTE, 8) == REMOTE


def test_a_long_text_repays_a_turn_that_may_bring_nothing() -> None:
    choice = _choice(20.0, drafts={REMOTE: "one", FUSED: "other"})
    rates = {REMOTE: 90.0, FUSED: 60.0, TARGET: 33.0}
    assert set(_write(choice, rates, 128)) == {FUSED}
    by_mode = _write(choice, rates, 2000, share=0.8)
    assert by_mode[REMOTE] > 1500


def test_trials_at_the_beginning_of_texts_cost_a_trifle_of_all_that_is_written() -> None:
    """And where the mode that was tried is the faster one, it is found in the end."""
    for rate, found in ((90.0, True), (45.0, False)):
        choice = _choice(20.0, drafts={REMOTE: "one", FUSED: "other"})
        texts = [_write(choice, {REMOTE: rate, FUSED: 60.0, TARGET: 33.0}) for _ in range(60)]
        assert all(set(text) == {FUSED} for text in texts[:4]), "not before something was written"
        tried = sum(REMOTE in text for text in texts)
        assert (texts[-1] == {REMOTE: 128}) is found
        assert tried > 30 if found else tried <= 3


def test_a_remembered_best_begins_and_stays() -> None:
    remembered = {
        REMOTE: ModeMeasurement(100.0, 100 / 80.0, 75.0, 100.0, remembered=True),
        FUSED: ModeMeasurement(100.0, 100 / 50.0, 75.0, 100.0, remembered=True),
    }
    choice = _choice(20.0, measured_by_mode=remembered)
    assert "remote remembered 80.0, fused remembered 50.0" in choice.why() and choice.settled is None
    assert _write(choice, {REMOTE: 80.0, FUSED: 50.0, TARGET: 33.0}) == {REMOTE: 128}
    assert "remote measured 80.0" in choice.why() and choice.settled == REMOTE


def test_a_remembered_best_is_left_where_it_no_longer_fits() -> None:
    remembered = {
        REMOTE: ModeMeasurement(100.0, 100 / 80.0, 75.0, 100.0, remembered=True),
        FUSED: ModeMeasurement(100.0, 100 / 70.0, 75.0, 100.0, remembered=True),
    }
    choice = _choice(20.0, measured_by_mode=remembered)
    by_mode = _write(choice, {REMOTE: 25.0, FUSED: 70.0, TARGET: 33.0}, 256)
    assert by_mode[REMOTE] <= 60 and by_mode[FUSED] >= 190


def test_a_rate_that_was_slowed_by_a_moment_of_the_machine_is_doubted() -> None:
    """It was foreseen at 63 and came out at 15, once: it is tried again when that costs a trifle."""
    slow = {REMOTE: ModeMeasurement(30.0, 30 / 15.0, 22.0, 30.0, remembered=True)}
    choice = _choice(0.4, measured_by_mode=slow)
    texts = [_write(choice, {REMOTE: 63.0, FUSED: 45.0, TARGET: 33.0}) for _ in range(100)]
    assert texts[0] == {FUSED: 128} and texts[-1] == {REMOTE: 128}


def test_a_remembered_rate_far_below_what_is_foreseen_is_measured_again_however_many_tokens_it_is_of() -> None:
    slow = {
        REMOTE: ModeMeasurement(256.0, 256 / 15.0, 192.0, 256.0, remembered=True),
        FUSED: ModeMeasurement(256.0, 256 / 45.0, 192.0, 256.0, remembered=True),
    }
    choice = _choice(0.4, measured_by_mode=slow)
    texts = [_write(choice, {REMOTE: 63.0, FUSED: 45.0, TARGET: 33.0}) for _ in range(100)]
    assert texts[0] == {FUSED: 128} and texts[-1] == {REMOTE: 128}


def test_what_was_remembered_of_a_slow_machine_is_dropped_when_a_mode_turns_out_far_faster() -> None:
    """Remembered while the machine was busy; fused is the fastest now, as it would be chosen without a memory."""
    rates = {REMOTE: 46.0, FUSED: 63.0, TARGET: 33.0}
    slow = {
        REMOTE: ModeMeasurement(64.0, 64 / 20.3, 48.0, 64.0, remembered=True),
        FUSED: ModeMeasurement(252.0, 252 / 16.7, 189.0, 252.0, remembered=True),
        TARGET: ModeMeasurement(40.0, 40 / 19.8, remembered=True),
    }
    choice = _choice(0.4, measured_by_mode=slow)
    by_mode = _write(choice, rates, 400)
    assert by_mode[FUSED] > 250 and choice.next(400) == FUSED
    assert "fused measured" in choice.why() and "remembered" not in choice.why()


def test_what_is_remembered_stays_where_a_mode_is_no_faster_than_that() -> None:
    remembered = {
        REMOTE: ModeMeasurement(64.0, 64 / 60.0, 48.0, 64.0, remembered=True),
        FUSED: ModeMeasurement(64.0, 64 / 40.0, 48.0, 64.0, remembered=True),
    }
    choice = _choice(0.4, measured_by_mode=remembered)
    assert _write(choice, {REMOTE: 66.0, FUSED: 40.0, TARGET: 33.0}) == {REMOTE: 128}
    assert "fused remembered 40.0" in choice.why()


def test_a_trial_that_comes_out_slow_ends_and_a_faster_mode_writes_the_rest() -> None:
    """Everything is slow on a busy machine, the mode on trial more than the others."""
    choice = _choice(0.4)
    by_mode = _write(choice, {REMOTE: 18.0, FUSED: 14.0, TARGET: 19.0}, 400)
    assert by_mode[FUSED] <= 100, by_mode
    assert choice.why().startswith("target measured 19.0, remote measured 18.0") and choice.next(400) != FUSED


@given(st.floats(0.1, 120.0), st.floats(0.3, 0.99), st.integers(1, 400))
def test_a_text_has_one_mode_at_a_time_and_few_changes(link_ms: float, share: float, tokens: int) -> None:
    choice = _choice(link_ms)
    rates = {mode: choice._estimates[mode].likely for mode in MODES}
    assert len(_write(choice, rates, tokens, share)) <= 3


def test_without_any_times_the_modes_are_found_out_by_trying() -> None:
    choice = ModeSelector(MODES, PairLatencies((), 0.4), SHARED)
    by_mode = _write(choice, {REMOTE: 5.0, FUSED: 90.0, TARGET: 30.0}, 600)
    assert max(by_mode, key=lambda mode: by_mode[mode]) == FUSED


def test_a_single_mode_needs_no_turn() -> None:
    choice = _choice(modes=[TARGET])
    assert choice.settled == choice.next(100) == TARGET == choice.next(100, TARGET, 50)
    choice.measured(TARGET, 24, 1.0)
    assert choice.why() == "there is only target"


def test_the_reason_tells_what_is_expected_and_what_was_measured() -> None:
    choice = _choice(20.0)
    assert choice.why().startswith("fused expected ") and choice.why().endswith("at a round trip of 20.0 ms")
    assert choice.settled is None
    _write(choice, {REMOTE: 50.0, FUSED: 60.0, TARGET: 33.0})
    assert choice.why().startswith("fused measured 60.0, remote expected ") and choice.settled == FUSED
    assert choice.why().endswith("at a round trip of 20.0 ms, 75% of the draft tokens of draft accepted")


def test_tokens_that_nobody_waited_for_are_no_measure() -> None:
    """Of a reader who is slower than every mode; it is all the same to it."""
    choice = _choice()
    choice.measured(REMOTE, 400, 0.001)
    assert "measured" not in choice.why() and not choice.settled
    assert all(estimate.likely < 400.0 for estimate in choice._estimates.values())


def test_turns_that_are_old_count_for_less() -> None:
    own = ModeMeasurement()
    own.learn(1000, 100.0, 0, 0)
    own.learn(256, 2.56, 0, 0)
    assert own.rate > 17.0 and own.tokens <= 256.0
    assert (
        not ModeMeasurement(TURN, 0.05).is_turn
        and ModeMeasurement(TURN, 0.1).is_turn
        and not ModeMeasurement(TURN - 1, 5.0).is_turn
    )


@pytest.mark.parametrize(
    ("before", "now", "differs"),
    [
        (0.2, 50.0, True),
        (50.0, 0.2, True),
        (50.0, 60.0, False),
        (50.0, 71.0, True),
        (0.2, 4.9, False),
        (1.0, 6.1, True),
    ],
)
def test_a_link_has_changed_when_it_is_far_from_what_it_was(before: float, now: float, differs: bool) -> None:
    assert _choice(before).differs(now) is differs


def test_over_another_link_all_is_foreseen_anew_and_what_is_remembered_of_it_counts() -> None:
    choice = _choice(0.4)
    _write(choice, {REMOTE: 80.0, FUSED: 60.0, TARGET: 33.0})
    assert choice.next(128) == REMOTE
    choice.begin(60.0)
    assert choice.link_ms == 60.0 and "measured" not in choice.why() and choice.next(128) == FUSED
    own = ModeMeasurement(100.0, 1.0, 75.0, 100.0, remembered=True)
    choice.begin(60.0, {REMOTE: own, FUSED: replace(own, seconds=2.0)})
    assert choice.next(128) == REMOTE
