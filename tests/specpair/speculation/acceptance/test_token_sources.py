"""Marks: where each token came from, and what follows from them about rounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.acceptance.round_counts import JudgedRound, RoundCounts, draft_sources
from specpair.speculation.acceptance.token_sources import (
    ELSEWHERE,
    Round,
    TokenSource,
    forced_before,
    joined,
    last_round,
    last_step,
    marks_of,
    passes,
    rounds,
    self_continued,
    split,
)
from specpair.speculation.draft import Draft, DraftSource, DraftToken

ACCEPTED, RECOVERED, BONUS, TARGET_DECODED, HEAD, FORCED = TokenSource


@pytest.mark.parametrize(
    ("accepted", "judged", "marks"),
    [
        ([True, True, True, False], 3, "aaab"),
        ([True, False], 3, "arx"),
        ([False], 3, "rxx"),
        ([False], 0, "b"),
        ([True, True], 2, "aa"),  # the last draft token has ended the text
        ([True, True], 5, "aaxxx"),
    ],
)
def test_the_marks_of_a_pass(accepted: list[bool], judged: int, marks: str) -> None:
    own = marks_of(accepted, judged)
    assert joined(own) == marks and len(own) == len(accepted)
    assert [*rounds(own)] == [Round(0, sum(accepted), judged)]


@pytest.mark.parametrize("wrong", ["q", "x", "a ", "xa", "A", "a\n"])
def test_what_is_no_mark_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"^should be made of the letters arbthf-x$"):
        split(wrong)


@pytest.mark.parametrize(
    ("accepted", "judged", "marks"),
    [
        ([False], 0, "t"),
        ([True, True, False], 2, "hht"),
        ([True, False], 3, "htxx"),
        ([False], 3, "txxx"),
        ([True], 1, "h"),  # it has ended the text
        ([True], 3, "hxx"),
    ],
)
def test_the_marks_of_a_self_continuation_step(accepted: list[bool], judged: int, marks: str) -> None:
    own = self_continued(accepted, judged)
    assert joined(own) == marks and split(marks) == own
    assert [*rounds(own)] == [], "nobody asked for it"
    assert [*passes(own)] == [own]
    assert last_step(own) == (len(accepted), judged)


def test_forced_tokens_follow_the_pass_that_led_to_them() -> None:
    marks = split("arffaxbfttfhtf")
    assert [joined(each) for each in passes(marks)] == ["arff", "ax", "bf", "t", "tf", "htf"]
    assert [*rounds(marks)] == [Round(0, 1, 2), Round(4, 1, 2), Round(5, 0, 0)]
    assert last_round(marks[:4]) == Round(0, 1, 2)


PASSES = st.lists(
    st.tuples(
        st.booleans(), st.integers(0, 4).flatmap(lambda judged: st.tuples(st.integers(0, judged), st.just(judged)))
    )
)


@given(PASSES)
def test_rounds_are_found_again(passes: list[tuple[bool, tuple[int, int]]]) -> None:
    """Whatever the passes of a text were, steps of self-continuation among them."""
    marks = [ELSEWHERE]
    expected = []
    for alone, (accepted, judged) in passes:
        if alone:
            marks += self_continued([True] * accepted + [False], judged)
        else:
            expected.append(Round(len(marks), accepted, judged))
            marks += marks_of([True] * accepted + [False], judged)
    assert split(joined(marks)) == marks
    assert [*rounds(marks)] == expected
    assert last_round(marks) == (expected[-1] if expected else None)
    sources = [mark.source for mark in marks]
    assert sources.count(ACCEPTED) == sum(each.accepted for each in expected)
    assert sources.count(RECOVERED) + sources.count(BONUS) == len(expected)


@pytest.mark.parametrize(("marks", "end", "found"), [("", 0, 0), ("tff", 3, 2), ("tffb", 4, 0), ("ff", 2, 2)])
def test_forced_tokens_right_before_a_place(marks: str, end: int, found: int) -> None:
    assert forced_before(split(marks), end) == found


M, L, P = DraftSource.MODEL, DraftSource.LOOKUP, DraftSource.PREDICTION


def _round(sources: list[DraftSource], accepted: int) -> JudgedRound:
    return JudgedRound(len(sources), accepted, tuple(DraftToken(5, source=source) for source in sources))


def test_each_token_has_the_source_of_the_draft_token_at_its_place() -> None:
    accepted, recovered, bonus, forced = (
        TokenSource.ACCEPTED,
        TokenSource.RECOVERED,
        TokenSource.BONUS,
        TokenSource.FORCED,
    )
    rounds = [_round([M, L, P], 2), _round([], 0), _round([L], 1), JudgedRound(2, 1)]
    sources = [accepted, accepted, recovered, bonus, accepted, forced, bonus, accepted, recovered]
    assert draft_sources(sources, rounds) == [M, L, P, None, L, None, None, None, None]
    assert draft_sources([recovered, accepted], rounds) == [None, None], "they are of other rounds"
    assert draft_sources([accepted], []) == [None]


def test_a_round_of_a_tree_counts_its_nodes_and_knows_which_were_accepted() -> None:
    """Accepted: the second of two siblings, and one behind it."""
    tree = Draft(
        3, tuple(DraftToken(*each) for each in ((7, 1.0, M), (8, 1.0, L, None, 2), (9, 1.0, P), (5, 1.0, M, None, 2)))
    )
    ended, replaced = JudgedRound.of(tree, [1, 3]), JudgedRound.of(tree, [1])
    assert [each.token for each in ended.tokens] == [8, 5, 7, 9] and ended.bonus
    assert [each.token for each in replaced.tokens] == [8, 9, 7, 5] and not replaced.bonus
    counts = RoundCounts()
    for each in (ended, replaced):
        counts.count(each)
    assert (counts.drafted, counts.accepted, counts.accepted_per_position) == (8, 3, [2, 1])
    assert (counts.looked_up_accepted, counts.prediction_rejected) == (2, 2)
    accepted, recovered, bonus = TokenSource.ACCEPTED, TokenSource.RECOVERED, TokenSource.BONUS
    sources = [accepted, accepted, bonus, accepted, recovered]
    assert draft_sources(sources, [ended, replaced]) == [L, M, None, L, P]
