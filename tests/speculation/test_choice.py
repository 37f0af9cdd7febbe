"""Which way of writing is the fastest: every way has its turn, the fastest is taken, and a changed link begins anew."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculation.choice import Choice

WAYS = ["remote", "fused", "target"]


def _play(choice: Choice, rates: dict[str, float]) -> list[str]:
    """Turns until one way is settled on, each at its rate."""
    turns = []
    while not choice.settled:
        turns.append(choice.next())
        seconds = max(0.1, 24 / rates[turns[-1]])
        choice.measured(turns[-1], round(seconds * rates[turns[-1]]), seconds)
    return turns


@given(st.permutations(WAYS), st.floats(1.3, 100.0), st.floats(1.3, 100.0))
def test_the_fastest_by_far_is_taken_after_a_turn_of_each(order: list[str], better: float, best: float) -> None:
    rates = dict(zip(order, (10.0, 10.0 * better, 10.0 * better * best), strict=True))
    choice = Choice(WAYS)
    assert sorted(_play(choice, rates)) == sorted(WAYS)
    assert choice.next() == order[2] and list(choice.rates) == order[::-1]


@given(st.permutations(WAYS), st.floats(1.001, 1.1))
def test_close_ones_have_three_turns_each(order: list[str], better: float) -> None:
    rates = dict(zip(order, (10.0, 10.0, 10.0 * better), strict=True))
    choice = Choice(WAYS)
    turns = _play(choice, rates)
    assert {way: turns.count(way) for way in WAYS} == dict.fromkeys(WAYS, 3)
    assert choice.next() == order[2]


def test_a_way_is_left_as_seldom_as_can_be() -> None:
    choice = Choice(WAYS)
    turns = _play(choice, dict.fromkeys(WAYS, 10.0))
    changes = sum(before != after for before, after in pairwise(turns))
    assert changes == 6, "two between three ways, in each of three rounds"


def test_a_single_way_needs_no_turn() -> None:
    choice = Choice(["target"])
    assert choice.settled == choice.next() == "target" and choice.rates == {}
    choice.measured("target", 24, 1.0)
    assert choice.next() == "target" and choice.why() == "there is only target"


def test_the_reason_is_what_the_choice_was_made_by() -> None:
    """The fastest may become slow, for a while or by what is written: the others were not measured there."""
    choice = Choice(WAYS, 0.2)
    assert choice.why() == "not measured yet"
    _play(choice, {"remote": 30.0, "fused": 20.0, "target": 10.0})
    reason = choice.why()
    choice.measured("remote", 10, 100.0)
    assert choice.why() == reason and list(choice.rates) == WAYS


def test_tokens_that_nobody_waited_for_are_no_measure() -> None:
    """Of a reader who is slower than every way; it is all the same to it."""
    choice = Choice(WAYS, 0.2)
    choice.measured("remote", 400, 0.001)
    assert choice.why() == "not measured yet" and choice.rates == {} and not choice.settled


def test_the_way_that_writes_when_the_link_changes_goes_on() -> None:
    choice = Choice(WAYS, 0.2)
    _play(choice, {"remote": 10.0, "fused": 30.0, "target": 10.0})
    choice.measured("fused", 10, 1.0)
    choice.begin(50.0)
    assert choice.next() == "fused" and choice.why() == "not measured yet"


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0.0, 0.2)), min_size=1, max_size=60))
def test_a_turn_takes_tokens_and_time(pieces: list[tuple[int, float]]) -> None:
    """However what is written comes in pieces."""
    choice = Choice(WAYS)
    tokens, seconds = 0, 0.0
    for piece, took in pieces:
        assert choice.next() == "remote"
        choice.measured("remote", piece, took)
        tokens, seconds = tokens + piece, seconds + took
        if tokens >= 24 and seconds >= 0.1:
            assert choice.next() != "remote"
            return


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
    assert Choice(WAYS, before).differs(now) is differs


def test_over_another_link_all_have_their_turns_again() -> None:
    choice = Choice(WAYS, 0.2)
    _play(choice, {"remote": 30.0, "fused": 20.0, "target": 10.0})
    assert choice.next() == "remote" and "remote 30.0, fused 20.0" in choice.why()
    choice.begin(50.0)
    assert not choice.settled and choice.rates == {}
    _play(choice, {"remote": 9.0, "fused": 20.0, "target": 10.0})
    assert choice.next() == "fused"
    assert choice.why() == "fused 20.0, target 10.0, remote 9.0 tokens/s at a round trip of 50.0 ms"
