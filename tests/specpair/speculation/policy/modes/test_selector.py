"""The mode with the best estimate begins a text; other modes get a trial where they could win and it is repaid."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.policy.modes.estimate import (
    FUSED,
    REMOTE,
    TARGET,
    TURN,
    WARM_UP,
    ModeMeasurement,
    PairLatencies,
)
from specpair.speculation.policy.modes.rates import ModeRates
from specpair.speculation.policy.modes.selector import ModeSelector

MODES = [REMOTE, FUSED, TARGET]
PASS_TIMES = tuple(0.03 + 0.0006 * more for more in range(17))
SHARED = {REMOTE: "draft", FUSED: "draft"}


def _selector(link: float = 0.0004, modes: list[str] = MODES, **options: object) -> ModeSelector:
    drafts = options.pop("drafts", SHARED)
    return ModeSelector(ModeRates(modes, PairLatencies(PASS_TIMES, link, 0.004, 0.004), drafts, **options))  # type: ignore[arg-type]


def _write(selector: ModeSelector, rates: dict[str, float], tokens: int = 128, share: float = 0.75) -> dict[str, int]:
    """Write a text, four tokens at a time, each mode at its rate; return the tokens of each mode, in order of use."""
    by_mode: dict[str, int] = {}
    mode, stretch, accepted = selector.next(tokens), 0, 0.0
    for left in range(tokens, 0, -4):
        following = selector.next(left, mode, stretch) if stretch else mode
        if following != mode:
            mode, stretch = following, 0
        accepted += 4 * share if mode != TARGET else 0.0
        accepted_now = int(accepted) if mode != TARGET else 0
        selector.add_measurement(
            mode, 4, 4 / rates[mode] if stretch >= WARM_UP else 0.0, accepted_now, 4 if mode != TARGET else 0
        )
        accepted -= accepted_now
        stretch += 4
        by_mode[mode] = by_mode.get(mode, 0) + 4
    return by_mode


def _expected(selector: ModeSelector) -> dict[str, float]:
    """The estimated rate of each mode, in tokens per second."""
    rates = {mode: float(rate) for mode, rate in re.findall(r"(\w+) expected ([\d.]+)", selector.rates.why())}
    assert set(rates) == set(MODES)
    return rates


@pytest.mark.parametrize(("link", "best"), [(0.0004, REMOTE), (0.02, FUSED), (0.06, FUSED)])
def test_one_mode_writes_a_short_text_where_estimates_are_right(link: float, best: str) -> None:
    selector = _selector(link)
    rates = _expected(selector)
    assert _write(selector, rates) == {best: 128}


def test_what_is_measured_is_told_and_nothing_else() -> None:
    selector = _selector()
    selector.add_measurement(TARGET, 4, 0.1)
    assert selector.rates.measured(TARGET) is None and selector.rates.measured(REMOTE) is None
    selector.add_measurement(TARGET, 96, 2.4)
    assert selector.rates.measured(TARGET) == (40.0, False)


def test_mode_that_could_not_win_is_never_tried() -> None:
    selector = _selector(0.06)
    for _ in range(50):
        assert TARGET not in _write(selector, {REMOTE: 40.0, FUSED: 63.0, TARGET: 33.0})


def test_first_mode_is_left_where_its_drafts_are_rejected() -> None:
    """Drafts that are hardly accepted cost more than they gain, on either end."""
    selector = _selector(0.0004, drafts={REMOTE: "poor", FUSED: "good"})
    by_mode = _write(selector, {REMOTE: 34.0, FUSED: 64.0, TARGET: 33.0}, share=0.2)
    assert by_mode == {REMOTE: 12, FUSED: 116}


def test_mode_that_is_slower_than_its_acceptance_suggests_is_left() -> None:
    """Its draft tokens are accepted, but something else takes time, such as a slow link or other work."""
    selector = _selector(0.0004)
    by_mode = _write(selector, {REMOTE: 25.0, FUSED: 63.0, TARGET: 33.0}, 256)
    assert by_mode[REMOTE] <= 40 and by_mode[FUSED] >= 200


def test_acceptance_is_shared_by_modes_with_the_same_draft_model() -> None:
    selector = _selector(0.02)
    assert selector.next(1000) == FUSED
    selector.add_measurement(FUSED, 40, 0.0, 39, 40)
    assert selector.next(1000) == REMOTE
    apart = _selector(0.02, drafts={REMOTE: "small", FUSED: "large"})
    apart.add_measurement(FUSED, 40, 0.0, 39, 40)
    assert apart.next(1000) == FUSED


def test_change_must_be_repaid_by_the_rest_of_the_text() -> None:
    for left, mode in ((1000, REMOTE), (20, FUSED)):
        selector = _selector(0.02)
        selector.add_measurement(FUSED, 40, 0.4, 39, 40)
        assert selector.next(left, FUSED, 40) == mode


def test_stretch_has_a_least_length() -> None:
    selector = _selector(0.0004)
    selector.add_measurement(REMOTE, 8, 0.0, 0, 8)
    assert selector.next(1000, REMOTE, 8) == REMOTE


def test_long_text_repays_a_trial_that_may_gain_nothing() -> None:
    selector = _selector(0.02, drafts={REMOTE: "one", FUSED: "other"})
    rates = {REMOTE: 90.0, FUSED: 60.0, TARGET: 33.0}
    assert set(_write(selector, rates, 128)) == {FUSED}
    by_mode = _write(selector, rates, 2000, share=0.8)
    assert by_mode[REMOTE] > 1500


def test_trials_at_the_beginning_of_texts_cost_a_trifle() -> None:
    """A tried mode that is faster is found in the end."""
    for rate, found in ((90.0, True), (45.0, False)):
        selector = _selector(0.02, drafts={REMOTE: "one", FUSED: "other"})
        texts = [_write(selector, {REMOTE: rate, FUSED: 60.0, TARGET: 33.0}) for _ in range(60)]
        assert all(set(text) == {FUSED} for text in texts[:4]), "no trial before enough was written"
        tried = sum(REMOTE in text for text in texts)
        assert (texts[-1] == {REMOTE: 128}) is found
        assert tried > 30 if found else tried <= 3


def test_remembered_best_mode_begins_and_stays() -> None:
    remembered = {
        REMOTE: ModeMeasurement(100.0, 100 / 80.0, 75.0, 100.0, remembered=True),
        FUSED: ModeMeasurement(100.0, 100 / 50.0, 75.0, 100.0, remembered=True),
    }
    selector = _selector(0.02, measured_by_mode=remembered)
    assert "remote remembered 80.0, fused remembered 50.0" in selector.rates.why() and selector.fastest is None
    assert _write(selector, {REMOTE: 80.0, FUSED: 50.0, TARGET: 33.0}) == {REMOTE: 128}
    assert "remote measured 80.0" in selector.rates.why() and selector.fastest == REMOTE


def test_remembered_best_mode_is_left_where_it_is_slower_now() -> None:
    remembered = {
        REMOTE: ModeMeasurement(100.0, 100 / 80.0, 75.0, 100.0, remembered=True),
        FUSED: ModeMeasurement(100.0, 100 / 70.0, 75.0, 100.0, remembered=True),
    }
    selector = _selector(0.02, measured_by_mode=remembered)
    by_mode = _write(selector, {REMOTE: 25.0, FUSED: 70.0, TARGET: 33.0}, 256)
    assert by_mode[REMOTE] <= 60 and by_mode[FUSED] >= 190


def test_remembered_rate_from_a_slow_moment_is_measured_again() -> None:
    """The estimate is 63 and the remembered rate 15: the mode is tried again when that costs a trifle."""
    slow = {REMOTE: ModeMeasurement(30.0, 30 / 15.0, 22.0, 30.0, remembered=True)}
    selector = _selector(0.0004, measured_by_mode=slow)
    texts = [_write(selector, {REMOTE: 63.0, FUSED: 45.0, TARGET: 33.0}) for _ in range(100)]
    assert texts[0] == {FUSED: 128} and texts[-1] == {REMOTE: 128}


def test_surprising_remembered_rate_of_many_tokens_is_measured_again() -> None:
    slow = {
        REMOTE: ModeMeasurement(256.0, 256 / 15.0, 192.0, 256.0, remembered=True),
        FUSED: ModeMeasurement(256.0, 256 / 45.0, 192.0, 256.0, remembered=True),
    }
    selector = _selector(0.0004, measured_by_mode=slow)
    texts = [_write(selector, {REMOTE: 63.0, FUSED: 45.0, TARGET: 33.0}) for _ in range(100)]
    assert texts[0] == {FUSED: 128} and texts[-1] == {REMOTE: 128}


def test_remembered_rates_are_dropped_when_a_mode_is_far_faster() -> None:
    """The rates were measured on a busy machine. Fused is the fastest now, and is chosen as without any memory."""
    rates = {REMOTE: 46.0, FUSED: 63.0, TARGET: 33.0}
    slow = {
        REMOTE: ModeMeasurement(64.0, 64 / 20.3, 48.0, 64.0, remembered=True),
        FUSED: ModeMeasurement(252.0, 252 / 16.7, 189.0, 252.0, remembered=True),
        TARGET: ModeMeasurement(40.0, 40 / 19.8, remembered=True),
    }
    selector = _selector(0.0004, measured_by_mode=slow)
    by_mode = _write(selector, rates, 400)
    assert by_mode[FUSED] > 250 and selector.next(400) == FUSED
    assert "fused measured" in selector.rates.why() and "remembered" not in selector.rates.why()


def test_remembered_rates_stay_where_a_mode_is_as_fast_as_remembered() -> None:
    remembered = {
        REMOTE: ModeMeasurement(64.0, 64 / 60.0, 48.0, 64.0, remembered=True),
        FUSED: ModeMeasurement(64.0, 64 / 40.0, 48.0, 64.0, remembered=True),
    }
    selector = _selector(0.0004, measured_by_mode=remembered)
    assert _write(selector, {REMOTE: 66.0, FUSED: 40.0, TARGET: 33.0}) == {REMOTE: 128}
    assert "fused remembered 40.0" in selector.rates.why()


def test_slow_trial_ends_and_a_faster_mode_writes_the_rest() -> None:
    """On a busy machine every mode is slow, and the mode on trial is the slowest."""
    selector = _selector(0.0004)
    by_mode = _write(selector, {REMOTE: 18.0, FUSED: 14.0, TARGET: 19.0}, 400)
    assert by_mode[FUSED] <= 100, by_mode
    assert selector.rates.why().startswith("target measured 19.0, remote measured 18.0") and selector.next(400) != FUSED


@given(st.floats(1e-4, 0.12), st.floats(0.3, 0.99), st.integers(1, 400))
def test_text_has_few_changes_of_mode(link: float, share: float, tokens: int) -> None:
    selector = _selector(link)
    rates = _expected(selector)
    assert len(_write(selector, rates, tokens, share)) <= 3


def test_best_mode_is_found_by_trials_where_no_times_are_known() -> None:
    selector = ModeSelector(ModeRates(MODES, PairLatencies((), 0.0004), SHARED))
    by_mode = _write(selector, {REMOTE: 5.0, FUSED: 90.0, TARGET: 30.0}, 600)
    assert max(by_mode, key=lambda mode: by_mode[mode]) == FUSED


def test_single_mode_needs_no_trial() -> None:
    selector = _selector(modes=[TARGET])
    assert selector.fastest == selector.next(100) == TARGET == selector.next(100, TARGET, 50)
    selector.add_measurement(TARGET, 24, 1.0)
    assert selector.rates.why() == "there is only target"


def test_why_reports_estimates_and_measurements() -> None:
    selector = _selector(0.02)
    why = selector.rates.why()
    assert why.startswith("fused expected ") and why.endswith("at a round trip of 20.0 ms")
    assert selector.fastest is None
    _write(selector, {REMOTE: 50.0, FUSED: 60.0, TARGET: 33.0})
    assert selector.rates.why().startswith("fused measured 60.0, remote expected ") and selector.fastest == FUSED
    assert selector.rates.why().endswith("at a round trip of 20.0 ms, 75% of the draft tokens of draft accepted")


def test_burst_of_tokens_is_no_measurement() -> None:
    """A reader that is slower than every mode receives tokens in bursts, at any rate."""
    selector = _selector()
    selector.add_measurement(REMOTE, 400, 0.001)
    assert "measured" not in selector.rates.why() and not selector.fastest
    assert all(rate < 400.0 for rate in _expected(selector).values())


def test_old_measurements_count_less() -> None:
    measurement = ModeMeasurement()
    measurement.learn(1000, 100.0, 0, 0)
    measurement.learn(256, 2.56, 0, 0)
    assert measurement.rate > 17.0 and measurement.tokens <= 256.0
    assert (
        not ModeMeasurement(TURN, 0.05).is_turn
        and ModeMeasurement(TURN, 0.1).is_turn
        and not ModeMeasurement(TURN - 1, 5.0).is_turn
    )


@pytest.mark.parametrize(
    ("before", "now", "differs"),
    [
        (0.0002, 0.05, True),
        (0.05, 0.0002, True),
        (0.05, 0.06, False),
        (0.05, 0.071, True),
        (0.0002, 0.0049, False),
        (0.001, 0.0061, True),
    ],
)
def test_link_differs_where_the_round_trip_is_far_off(before: float, now: float, differs: bool) -> None:
    assert _selector(before).rates.differs(now) is differs


def test_another_link_starts_over_from_estimates_and_memory() -> None:
    selector = _selector(0.0004)
    _write(selector, {REMOTE: 80.0, FUSED: 60.0, TARGET: 33.0})
    assert selector.next(128) == REMOTE
    selector.begin(0.06)
    assert selector.rates.link == 0.06 and "measured" not in selector.rates.why() and selector.next(128) == FUSED
    measurement = ModeMeasurement(100.0, 1.0, 75.0, 100.0, remembered=True)
    selector.begin(0.06, {REMOTE: measurement, FUSED: replace(measurement, seconds=2.0)})
    assert selector.next(128) == REMOTE


# Both ends on the same two cores: passes of a real pair over 1, 2, … tokens, with weights in 4 bits and in bfloat16.
FOUR_BITS = tuple(0.034 + 0.022 * more for more in range(17))
BFLOAT16 = (0.07, 0.114, 0.127, 0.141, *(0.147 + 0.009 * more for more in range(13)))
HERE = [REMOTE, TARGET]


def _on_shared_cores(pass_times: tuple[float, ...]) -> ModeSelector:
    latencies = PairLatencies(pass_times, 0.0005, draft=0.022, read=0.0046)
    return ModeSelector(ModeRates(HERE, latencies, {REMOTE: "draft"}))


@pytest.mark.parametrize("tokens", [16, 128, 2000])
def test_where_no_draft_can_pay_none_is_tried(tokens: int) -> None:
    """A draft token and its place in a pass take longer than a step of the target."""
    selector = _on_shared_cores(FOUR_BITS)
    assert selector.next(tokens, unread=20) == TARGET
    assert _write(selector, {REMOTE: 20.0, TARGET: 29.0}, tokens) == {TARGET: tokens}


def test_drafts_that_may_pay_begin_a_text_that_repays_to_try_them() -> None:
    assert _on_shared_cores(BFLOAT16).next(128, unread=20) == REMOTE
    assert _on_shared_cores(BFLOAT16).next(24, unread=20) == TARGET, "so short a text repays no trial"
    assert _on_shared_cores(BFLOAT16).next(128, unread=800) == TARGET, "the draft model would have to read for long"
    good = _write(_on_shared_cores(BFLOAT16), {REMOTE: 22.0, TARGET: 14.3}, share=0.95)
    assert good == {REMOTE: 128}


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_drafts_that_do_not_pay_are_left_as_soon_as_that_is_seen(share: float) -> None:
    by_mode = _write(_on_shared_cores(BFLOAT16), {REMOTE: 11.0, TARGET: 14.3}, share=share)
    assert by_mode[REMOTE] <= 16 and list(by_mode) == [REMOTE, TARGET]


def test_a_change_to_the_draft_model_counts_what_it_has_to_read() -> None:
    for unread, mode in ((0, REMOTE), (2000, TARGET)):
        selector = _on_shared_cores(BFLOAT16)
        selector.add_measurement(TARGET, 40, 40 / 14.3)
        selector.add_measurement(REMOTE, 40, 40 / 20.0, 38, 40)
        assert selector.next(200, TARGET, 40, unread) == mode


def test_other_work_on_shared_cores_does_not_make_drafts_look_better() -> None:
    """It slows the target alone, and would slow drafts and their verification as much."""
    selector = _on_shared_cores(FOUR_BITS)
    assert _write(selector, {REMOTE: 10.0, TARGET: 15.0}, 1000) == {TARGET: 1000}


@pytest.mark.parametrize("read", [None, 5e-5], ids=["cores of its own", "shared cores"])
def test_a_target_as_fast_as_a_round_begins_alone(read: float | None) -> None:
    """As the one that ships, whose draft model takes 0.3 ms a token."""
    small = PairLatencies(tuple(0.001 + 0.0002 * more for more in range(17)), 0.0003, draft=0.0003, read=read)
    assert ModeSelector(ModeRates(HERE, small, {REMOTE: "draft"})).next(128, unread=20) == TARGET


def test_a_pair_that_has_measured_nothing_drafts_where_that_is_expected_to_be_no_slower() -> None:
    """Drafting takes longer than a pass: no draft of the model pays, but those looked up in the text may."""
    slow_drafts = PairLatencies(PASS_TIMES, 0.02, 0.04)
    assert ModeSelector(ModeRates([REMOTE, TARGET], slow_drafts)).next(64) == REMOTE
    assert ModeSelector(ModeRates([REMOTE, TARGET], replace(slow_drafts, self_continue=False))).next(64) == TARGET
    short_passes = replace(slow_drafts, pass_times=tuple(each / 40 for each in PASS_TIMES))
    assert ModeSelector(ModeRates([REMOTE, TARGET], short_passes)).next(64) == TARGET, (
        "rounds take longer than the passes"
    )


def test_a_target_that_is_faster_than_reported_makes_drafts_faster_too() -> None:
    """The machine was busy when its passes were timed."""
    reported, measured = _selector(), _selector()
    measured.add_measurement(TARGET, 96, 96 * PASS_TIMES[0] / 2)
    for mode in (REMOTE, FUSED):
        assert measured.rates.estimates[mode].likely > 1.7 * reported.rates.estimates[mode].likely


@pytest.mark.parametrize("slower", [0.5, 0.7, 0.85])
def test_a_machine_that_is_slower_than_reported_is_no_reason_to_change_the_mode(slower: float) -> None:
    selector = _selector(0.0004)
    rates = {mode: slower * each for mode, each in _expected(selector).items()}
    assert _write(selector, rates, 64) == {REMOTE: 64}
