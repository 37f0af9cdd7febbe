"""The chance of a prediction goes from its prior to the share that was right, kind by kind, and all kinds move it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.drafts.text_lookup import HitRates, kind_of

PRIORS = [(0.2, 0.05), (0.6, 0.05)]
OUTCOMES = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([None, 0, 1])), max_size=60)


def learnt(*outcomes: tuple[int, int | None]) -> HitRates:
    rates = HitRates(PRIORS)
    for kind, right in outcomes:
        rates.learn(kind, right)
    return rates


def test_at_first_the_chances_are_the_priors() -> None:
    assert [HitRates(PRIORS).chances(kind) for kind in (0, 1)] == [pytest.approx(list(each)) for each in PRIORS]


def test_the_chances_become_the_shares_that_were_right() -> None:
    outcomes: list[tuple[int, int | None]] = [(0, 0), (0, 1), (0, None), (0, 0)] * 100
    assert learnt(*outcomes).chances(0) == pytest.approx([0.5, 0.25], abs=0.02)


def test_what_one_kind_shows_moves_the_others() -> None:
    good, bad = learnt(*[(0, 0)] * 30).chances(1)[0], learnt(*[(0, None)] * 30).chances(1)[0]
    assert good > 0.8 > 0.6 > 0.4 > bad


def test_the_latest_outcomes_count_most() -> None:
    outcomes: list[tuple[int, int | None]] = [(1, 0)] * 300
    assert learnt(*outcomes, *[(1, None)] * 300).chances(1)[0] < 0.25


@given(OUTCOMES)
def test_chances_are_between_0_and_1(outcomes: list[tuple[int, int | None]]) -> None:
    rates = learnt(*outcomes)
    assert all(0.0 < chance < 1.0 for kind in (0, 1) for chance in rates.chances(kind))


def test_matches_twice_as_long_are_the_next_kind() -> None:
    assert [kind_of(length, 4) for length in (1, 2, 3, 4, 7, 8, 15, 16, 500)] == [0, 1, 1, 2, 2, 3, 3, 3, 3]
