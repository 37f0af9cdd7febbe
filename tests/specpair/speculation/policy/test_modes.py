"""The mode with the best estimate begins a text; other modes get a trial where they could win and it is repaid."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.policy.modes.estimate import (
    FUSED,
    LOOKUP,
    PRIOR,
    REMOTE,
    TARGET,
    WARM_UP,
    AcceptanceEstimate,
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


def test_remembered_best_mode_begins_and_stays() -> None:
    remembered = {
        REMOTE: ModeMeasurement(100.0, 100 / 80.0, 75.0, 100.0, remembered=True),
        FUSED: ModeMeasurement(100.0, 100 / 50.0, 75.0, 100.0, remembered=True),
    }
    selector = _selector(0.02, measured_by_mode=remembered)
    assert "remote remembered 80.0, fused remembered 50.0" in selector.rates.why() and selector.fastest is None
    assert _write(selector, {REMOTE: 80.0, FUSED: 50.0, TARGET: 33.0}) == {REMOTE: 128}
    assert "remote measured 80.0" in selector.rates.why() and selector.fastest == REMOTE


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


def test_another_link_starts_over_from_estimates_and_memory() -> None:
    selector = _selector(0.0004)
    _write(selector, {REMOTE: 80.0, FUSED: 60.0, TARGET: 33.0})
    assert selector.next(128) == REMOTE
    selector.begin(0.06)
    assert (
        selector.rates.machines.link == 0.06 and "measured" not in selector.rates.why() and selector.next(128) == FUSED
    )
    measurement = ModeMeasurement(100.0, 1.0, 75.0, 100.0, remembered=True)
    selector.begin(0.06, {REMOTE: measurement, FUSED: replace(measurement, seconds=2.0)})
    assert selector.next(128) == REMOTE


# Both ends on the same two cores: passes of a real pair over 1, 2, … tokens, with weights in 4 bits and in bfloat16.
FOUR_BITS = tuple(0.034 + 0.022 * more for more in range(17))
FLAT_BITS = tuple(0.034 + 0.006 * more for more in range(17))  # the same where a pass takes several tokens as one
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


@pytest.mark.parametrize("share", [0.0, 0.4, 0.8, 0.95])
def test_what_lookups_find_is_seen_without_a_trial(share: float) -> None:
    """A draft model does not pay here. The target begins, and lookups take over where they find enough of the text."""
    selector, found = _on_shared_cores(FLAT_BITS), AcceptanceEstimate(0.0)
    mode, stretch, by_mode = "", 0, {TARGET: 0, LOOKUP: 0, REMOTE: 0}
    for left in range(96, 0, -4):
        following = selector.next(left, mode or None, stretch, unread=20, found=found)
        mode, stretch = following, stretch + 4 if following == mode else 4
        found.learn(round(4 * share), 4)
        seconds = 4 / {TARGET: 29.0, LOOKUP: 29.0 / (1.05 - share)}.get(mode, 20.0)
        selector.add_measurement(mode, 4, seconds if stretch > WARM_UP else 0.0, round(4 * share), 4)
        by_mode[mode] += 4
    assert by_mode[REMOTE] == 0 and (by_mode[LOOKUP] > 60) == (share > 0.0), by_mode
    if share == 0.95:  # of a text in which lookup is off, the good rate says nothing
        assert selector.next(96, found=AcceptanceEstimate(share)) == LOOKUP and selector.next(96) != LOOKUP


def test_a_text_without_repetition_leaves_lookup_soon() -> None:
    selector, found = _on_shared_cores(FLAT_BITS), AcceptanceEstimate(0.9)
    for written in range(0, 40, 4):
        mode = selector.next(200 - written, LOOKUP if written else None, written, found=found)
        found.learn(0, 4)
        selector.add_measurement(mode, 4, 4 / 26.0 if written >= WARM_UP else 0.0, 0, 4)
        if mode != LOOKUP:
            break
    assert 12 <= written < 40 and mode != LOOKUP


def test_a_change_to_the_draft_model_counts_what_it_has_to_read() -> None:
    for unread, mode in ((0, REMOTE), (2000, TARGET)):
        selector = _on_shared_cores(BFLOAT16)
        selector.add_measurement(TARGET, 40, 40 / 14.3)
        selector.add_measurement(REMOTE, 40, 40 / 20.0, 38, 40)
        assert selector.next(200, TARGET, 40, unread) == mode


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


def test_comparisons_narrow_the_share_and_old_ones_fade() -> None:
    acceptance = AcceptanceEstimate()
    assert acceptance.likely == PRIOR
    wide = acceptance.high - acceptance.likely
    acceptance.learn(57, 60)
    assert acceptance.likely == pytest.approx(0.94, abs=0.01) and acceptance.high - acceptance.likely < wide / 2
    for _ in range(10):
        acceptance.learn(10, 40)
    assert acceptance.likely == pytest.approx(0.25, abs=0.05)


def test_a_head_that_drafts_few_tokens_makes_fused_slower_and_remote_faster() -> None:
    """In mode `remote`, the verifier continues by itself with it."""
    machines = PairLatencies(PASS_TIMES, 0.06, 0.02, 0.002)
    with_head = replace(machines, served_depth=3, head=0.002, head_depth=3)
    plain, head = (ModeRates(MODES, each, SHARED).estimates for each in (machines, with_head))
    assert head[FUSED].likely < 0.95 * plain[FUSED].likely
    assert head[REMOTE].likely > 1.3 * plain[REMOTE].likely
    assert head[TARGET] == plain[TARGET]
    dear = ModeRates(MODES, replace(machines, head=1.0, head_depth=3), SHARED).estimates
    assert dear == plain, "a head that takes longer than a pass is not used"
