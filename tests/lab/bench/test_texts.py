"""Equal texts and right answers."""

from decimal import Decimal

import pytest

from lab.bench.cases.answers import answer_in
from lab.bench.records import RequestFailure
from lab.bench.statistics.analysis import analyse
from lab.bench.statistics.scores import compare_scores, score, sign_test
from lab.bench.statistics.texts import equality
from tests.lab.bench.runs import a_request, pair_and_target


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("48/2 = 24\n#### 72", "72"),
        ("#### $1,250.50", "1250.50"),
        ("so \\boxed{-3}", "-3"),
        ("so \\boxed{\\$18}", "18"),
        ("2 + 2 = 4. The answer is **18**, not 20", "18"),
        ("first 3, then 5.", "5"),
        ("#### 8\nQuestion: 9 apples", "8"),
        ("half of 10 is 5\nQuestion: 9 apples", "5"),
        ("none", None),
    ],
)
def test_the_answer_of_a_solution_is_found(text: str, number: str | None) -> None:
    assert answer_in(text) == (None if number is None else Decimal(number))


def test_equal_amounts_are_equal_however_they_are_written() -> None:
    right = a_request(text="it costs $18.00", expected="#### 18")
    unread = a_request(index=1, text="no idea", expected="#### 18")
    found = score("c", "s", [right, unread, a_request(index=2)])
    assert found is not None
    assert (found.answers, found.right, found.unread, found.share) == (2, 1, 1, 0.5)
    assert score("c", "s", [a_request(text="1")]) is None


def test_texts_are_compared_by_requests() -> None:
    mine = [a_request(index=0, text="a"), a_request(index=1, text="b", prompt="p1"), a_request(index=2, text="c")]
    theirs = [
        a_request(index=0, text="a"),
        a_request(index=1, text="x"),
        a_request(index=2, text="c", failure=RequestFailure(kind="cut", message="")),
    ]
    found = equality("c", "pair", "target", mine, theirs)
    assert found is not None
    assert (found.pairs, found.equal, found.differing) == (2, 1, ("p1",))
    assert found.sentence == (
        "1 of 2 texts of pair equal those of target, by prompt and seed; the first that differs: prompt p1, seed 0, "
        "after 0 characters 'b' in place of 'x'"
    )
    assert equality("c", "pair", "target", mine, []) is None


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        ("same, then a\n line", "same, then b", r"after 11 characters 'a\n line' in place of 'b'"),
        ("same", "same, and more", "after 4 characters its end in place of ', and more'"),
        ("x" * 100, "", "after 0 characters 'xxxxxxxxxxxxxxxxxxxxxxxx' in place of its end"),
        (None, None, "seed 7 (the run keeps no texts)"),
    ],
)
def test_the_first_texts_that_differ_are_told(mine: str | None, theirs: str | None, words: str) -> None:
    """By repetition and request, whatever the order of the records."""
    ones = [
        a_request(repetition=1, index=0, text="later"),
        a_request(index=3, prompt="p3", seed=7, text=mine, text_hash="mine"),
        a_request(index=1, text="a"),
    ]
    others = [
        a_request(repetition=1, index=0, text="another"),
        a_request(index=1, text="a"),
        a_request(index=3, prompt="p3", seed=7, text=theirs, text_hash="theirs"),
    ]
    found = equality("c", "pair", "target", ones, others)
    assert found is not None and (found.equal, found.pairs) == (1, 3)
    assert "the first that differs: prompt p3, seed 7" in found.sentence and found.sentence.endswith(words)


def test_scores_are_compared_by_the_questions_that_only_one_answered() -> None:
    texts = {"pair": "11011", "target": "11100"}
    mine, theirs = (
        [a_request(index=index, text=f"#### {right}", expected="#### 1") for index, right in enumerate(rights)]
        for rights in texts.values()
    )
    found = compare_scores("c", "pair", "target", mine, theirs)
    assert found is not None
    assert (found.pairs, found.only_side, found.only_baseline, found.p) == (5, 2, 1, 1.0)


def test_an_uneven_split_is_unlikely() -> None:
    assert sign_test(0, 0) == 1
    assert sign_test(8, 0) == pytest.approx(2 / 2**8)
    assert sign_test(3, 7) == sign_test(7, 3)


def test_a_run_tells_equality_and_scores_of_each_case() -> None:
    found = analyse(pair_and_target())
    assert [(each.case, each.equal, each.pairs) for each in found.equalities] == [("counting", 8, 8), ("noise", 8, 8)]
    assert [(each.case, each.side, each.right) for each in found.scores] == [
        ("noise", "target", 8),
        ("noise", "pair", 8),
    ]
    assert [each.p for each in found.score_comparisons] == [1]
