"""Where tokens came from: told at once as well as can be, and settled by whoever knows."""

import pytest

from drafter_client.metrics.token_source import SourceChange, TokenSource, TokenSources, first_sources
from speculation.policy.verifier_timeline import InFlightDraft

ACCEPTED, CORRECTION, FREE, OWN = TokenSource


class Told:
    """Origins of a text whose first ten tokens are known."""

    def __init__(self, accepts: bool = True) -> None:
        self.text = [0] * 10
        self.sources = TokenSources(self.text, accepts)

    def guess(self, *drafts: int, position: int = 10) -> InFlightDraft:
        guess = InFlightDraft(position, list(drafts), 0.0, 0.0)
        self.sources.sent(guess)
        return guess

    def tell(self, *tokens: int) -> list[TokenSource]:
        start = len(self.text)
        self.text += tokens
        return self.sources.tell(start, len(tokens))


@pytest.mark.parametrize(
    ("tokens", "stood", "told"),
    [
        ([1, 2, 3, 4], 3, [ACCEPTED, ACCEPTED, ACCEPTED, FREE]),
        ([1, 9], 1, [ACCEPTED, CORRECTION]),
        ([9], 0, [CORRECTION]),
        ([1, 2, 3], 3, [ACCEPTED, ACCEPTED, ACCEPTED]),  # the last draft has ended the text
    ],
)
def test_a_guess_and_what_came_of_it(tokens: list[int], stood: int, told: list[TokenSource]) -> None:
    by_answer, by_stream = Told(), Told()
    assert by_answer.sources.answered(by_answer.guess(1, 2, 3), 10, stood, 10 + len(tokens)) == []
    assert by_answer.tell(*tokens) == told
    assert not by_answer.sources.waits and by_answer.sources.close() == []

    guess = by_stream.guess(1, 2, 3)
    assert by_stream.tell(*tokens) == told
    assert by_stream.sources.waits
    assert by_stream.sources.answered(guess, 10, stood, 10 + len(tokens)) == []
    assert not by_stream.sources.waits and by_stream.sources.close() == []


def test_a_draft_that_fell_and_a_token_that_says_the_same() -> None:
    """By the strategy threshold that may be."""
    told = Told()
    told.sources.answered(told.guess(1, 2, 3), 10, 1, 12)
    assert told.tell(1, 2) == [ACCEPTED, CORRECTION]


def test_a_step_that_was_asked_for() -> None:
    told = Told()
    told.sources.answered(told.guess(), 10, 0, 11)
    assert told.tell(5) == [FREE]


def test_the_verifiers_own_steps_are_what_it_says_they_are() -> None:
    told = Told()
    told.sources.went_on(10, 2)
    assert told.tell(5, 6) == [OWN, OWN]
    guess = told.guess(7, 8, position=12)
    told.sources.answered(told.guess(7, position=12), 14, 0, 14)  # it never ran, and told of both all the same
    assert told.tell(7, 8) == [ACCEPTED, ACCEPTED]
    assert told.sources.waits, "of the other guess, as far as is known"
    assert told.sources.went_on(12, 2) == [SourceChange(12, ACCEPTED, OWN), SourceChange(13, ACCEPTED, OWN)]
    assert not told.sources.waits
    assert told.sources.answered(guess, 14, 0, 15) == []
    assert told.tell(9) == [FREE], "its drafts were there already, so that it came to a plain step"


def test_what_no_guess_under_way_can_have_brought_is_the_verifiers_own() -> None:
    told = Told()
    one, two = told.guess(1, 2), told.guess(1, 2, 3)
    told.sources.answered(one, 10, 0, 11)
    assert told.tell(9) == [CORRECTION]
    told.sources.answered(two, 12, 0, 12)  # out of date
    assert told.tell(2) == [OWN]
    assert not told.sources.waits
    assert told.sources.close() == []


def test_what_a_contained_guess_is_told_came_with_the_longer_whose_answer_is_slow() -> None:
    told = Told()
    one, two = told.guess(1, 2), told.guess(1, 2, 3, 4)
    told.sources.answered(one, 14, 0, 14)
    assert told.tell(1, 2, 3, 9) == [ACCEPTED, ACCEPTED, ACCEPTED, CORRECTION]
    assert told.sources.waits
    assert told.sources.answered(two, 10, 3, 14) == []
    assert not told.sources.waits


def test_the_answer_has_the_last_word() -> None:
    """Two guesses were answered in one pass, and the stream told of it first."""
    told = Told()
    one, two = told.guess(1), told.guess(1, 2, 3)
    assert told.tell(1, 2, 3, 4) == [ACCEPTED, FREE, ACCEPTED, FREE]
    assert told.sources.answered(one, 14, 0, 14) == []
    assert told.sources.answered(two, 10, 3, 14) == [SourceChange(11, FREE, ACCEPTED)]


def test_a_guess_that_can_have_brought_nothing_is_not_waited_for() -> None:
    told = Told()
    told.guess(1, 2, 3)
    told.sources.went_on(10, 1)
    assert told.tell(9, 5) == [OWN, OWN]
    assert not told.sources.waits, "it said something else"
    assert told.sources.close() == []


def test_what_an_answer_that_is_lost_would_have_told_counts_as_the_verifiers_own() -> None:
    told = Told()
    told.guess(1, 2)
    assert told.tell(1, 9) == [ACCEPTED, CORRECTION]
    assert told.sources.waits
    assert told.sources.close() == [SourceChange(10, ACCEPTED, OWN), SourceChange(11, CORRECTION, OWN)]


def test_under_a_rule_by_which_no_draft_stands_none_is_accepted() -> None:
    told = Told(accepts=False)
    guess = told.guess(1, 2)
    assert told.tell(1) == [CORRECTION]
    assert told.sources.answered(guess, 10, 0, 11) == []


def test_with_the_prompt_comes_one_and_what_was_added_before_it_was_asked_for_again() -> None:
    assert first_sources(1) == [FREE]
    assert first_sources(3) == [FREE, OWN, OWN]
