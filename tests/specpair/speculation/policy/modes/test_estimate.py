"""The rate of each mode is estimated from the times that both ends report, before the first token."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.policy.modes.estimate import (
    FUSED,
    PRIOR,
    REMOTE,
    TARGET,
    AcceptanceEstimate,
    PairLatencies,
    estimate,
    rate,
)

PASS_TIMES = tuple(0.03 + 0.0006 * more for more in range(17))
SHARES = st.floats(0.0, 1.0)


def _machines(link: float, draft: float | None = 0.004, served_draft: float | None = 0.004) -> PairLatencies:
    return PairLatencies(PASS_TIMES, link, draft, served_draft)


def test_target_mode_takes_one_pass_a_token() -> None:
    assert rate(TARGET, _machines(0.0004), 0.9) == rate(TARGET, _machines(0.06), 0.1) == pytest.approx(1.0 / 0.03)


@pytest.mark.parametrize(
    ("link", "accepted", "best"), [(0.0004, 0.75, REMOTE), (0.02, 0.75, FUSED), (0.06, 0.9, FUSED)]
)
def test_best_mode_follows_from_the_link_and_the_share_accepted(link: float, accepted: float, best: str) -> None:
    rates = {mode: rate(mode, _machines(link), accepted) for mode in (TARGET, FUSED, REMOTE)}
    assert max(rates, key=lambda mode: rates[mode]) == best and rates[best] > 1.5 * rates[TARGET]


@pytest.mark.parametrize(
    ("mode", "link", "accepted", "measured"),
    [  # paced engines, 30 ms a pass, 4 ms a draft step, texts of 128 tokens
        (FUSED, 0.0004, 0.59, 46.5),
        (FUSED, 0.0004, 0.92, 84.0),
        (FUSED, 0.06, 0.98, 136.8),
        (REMOTE, 0.0004, 0.98, 178.6),
        (REMOTE, 0.02, 0.58, 37.4),
        (REMOTE, 0.02, 0.93, 87.6),
        (REMOTE, 0.06, 0.92, 70.3),
        (REMOTE, 0.06, 0.98, 153.1),
    ],
)
def test_estimates_are_near_measured_rates(mode: str, link: float, accepted: float, measured: float) -> None:
    assert 0.8 * measured < rate(mode, _machines(link), accepted) < 1.25 * measured


def test_trees_make_remote_faster_where_wide_passes_cost_little() -> None:
    flat = replace(_machines(0.0004), pass_times=tuple(0.03 + 0.0001 * more for more in range(17)))
    on_same_cores = replace(flat, read=0.001)
    for machines, mode, faster in (
        (flat, REMOTE, True),
        (_machines(0.0004), REMOTE, False),  # a pass of 8 draft tokens takes 1.16 steps there
        (on_same_cores, REMOTE, False),
        (flat, FUSED, False),
        (flat, TARGET, False),
    ):
        with_trees, without = (rate(mode, replace(machines, trees=trees), 0.8) for trees in (True, False))
        assert (with_trees > 1.05 * without) == faster and with_trees >= without


@given(st.sampled_from([TARGET, FUSED, REMOTE]), st.floats(1e-4, 0.2), SHARES, SHARES)
def test_higher_acceptance_is_never_slower(mode: str, link: float, one: float, other: float) -> None:
    machines = _machines(link)
    assert rate(mode, machines, min(one, other)) <= rate(mode, machines, max(one, other)) * 1.0001


@given(st.integers(0, 40), st.integers(0, 40))
def test_likely_rate_lies_between_the_bounds(accepted: int, rejected: int) -> None:
    acceptance = AcceptanceEstimate()
    acceptance.learn(accepted, accepted + rejected)
    for mode in (TARGET, FUSED, REMOTE):
        low, likely, high = estimate(mode, _machines(0.02), acceptance)
        assert 0.0 < low < likely < high


def test_comparisons_narrow_the_share_and_old_ones_fade() -> None:
    acceptance = AcceptanceEstimate()
    assert acceptance.likely == PRIOR
    wide = acceptance.high - acceptance.likely
    acceptance.learn(57, 60)
    assert acceptance.likely == pytest.approx(0.94, abs=0.01) and acceptance.high - acceptance.likely < wide / 2
    for _ in range(10):
        acceptance.learn(10, 40)
    assert acceptance.likely == pytest.approx(0.25, abs=0.05)


def test_unknown_time_gives_a_wide_range() -> None:
    known, assumed = (
        estimate(FUSED, _machines(0.001, served_draft=step), AcceptanceEstimate()) for step in (0.004, None)
    )
    assert assumed.high / assumed.low > 3.0 * known.high / known.low
    nothing = estimate(TARGET, PairLatencies((), 0.001), AcceptanceEstimate())
    assert 0.0 < nothing.low < nothing.likely / 2 < nothing.high / 4


def test_on_the_same_cores_drafting_takes_turns_with_passes() -> None:
    """Drafting is not hidden then: it is worth less than on cores of its own, and nothing where it takes too long."""
    apart = PairLatencies(tuple(0.06 + 0.015 * more for more in range(17)), 0.0001, 0.027)
    shared = replace(apart, read=0.005)
    assert rate(REMOTE, apart, 0.95) > 1.2 * rate(REMOTE, shared, 0.95)
    assert rate(REMOTE, shared, 0.5) < rate(TARGET, shared, 0.5) < 1.2 * rate(REMOTE, shared, 0.5)
