"""Where tokens came from: told at once as well as can be, and settled by the answer to the guess that brought them."""

import pytest

from drafter_client.origin import Origin, Origins
from speculation.forecast import Flight

ACCEPTED, CORRECTION, FREE, OWN = Origin


def _guess(position: int, *drafts: int) -> Flight:
    return Flight(position, list(drafts), 0.0, 0.0)


def _tell(
    origins: Origins, position: int, *tokens: int, own: bool = False, answered: Flight | None = None, recorded: int = 0
) -> list[Origin]:
    return [origins.tell(at, token, own, answered, at < recorded) for at, token in enumerate(tokens, position)]


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        ([1, 2, 3, 4], [ACCEPTED, ACCEPTED, ACCEPTED, FREE]),
        ([1, 9], [ACCEPTED, CORRECTION]),
        ([9], [CORRECTION]),
    ],
)
@pytest.mark.parametrize("by_stream", [False, True])
def test_a_guess_and_what_came_of_it(tokens: list[int], told: list[Origin], by_stream: bool) -> None:
    origins, guess = Origins(), _guess(10, 1, 2, 3)
    origins.sent(guess)
    assert _tell(origins, 10, *tokens, answered=None if by_stream else guess) == told
    assert [new for _, new in origins.settle(guess, 10, tokens)] == told
    assert list(origins.settle(guess, 10, tokens)) == [], "once"


def test_a_step_that_was_asked_for_and_the_verifiers_own() -> None:
    origins, guess = Origins(), _guess(10)
    origins.sent(guess)
    assert _tell(origins, 10, 1, answered=guess) == [FREE]
    assert _tell(origins, 11, 2, 3, own=True) == [OWN, OWN]
    assert _tell(Origins(), 10, 1) == [FREE], "the stream says when it was not asked"


def test_what_a_stale_guess_is_told_from_the_record_was_the_verifiers_own() -> None:
    origins, guess = Origins(), _guess(10, 1, 2)
    origins.sent(guess)
    assert _tell(origins, 10, 1, 7, 8, answered=guess, recorded=99) == [OWN, OWN, OWN]
    origins, guess = Origins(), _guess(10, 1, 2)
    origins.sent(guess)
    assert _tell(origins, 10, 1, 2, 3, answered=guess, recorded=11) == [OWN, ACCEPTED, FREE]
    assert list(origins.settle(guess, 11, [1, 2, 3])) == [(ACCEPTED, ACCEPTED), (FREE, FREE)]


def test_what_a_later_guess_is_told_came_with_the_earlier_whose_answer_is_slow() -> None:
    origins, one, two = Origins(), _guess(10, 1, 2), _guess(10, 1, 2, 3, 4)
    origins.sent(one)
    origins.sent(two)
    assert _tell(origins, 10, 1, 9, answered=two, recorded=99) == [ACCEPTED, CORRECTION]
    assert list(origins.settle(one, 10, [1, 9])) == [(ACCEPTED, ACCEPTED), (CORRECTION, CORRECTION)]


def test_one_that_said_something_else_brings_nothing_more() -> None:
    origins, one, two = Origins(), _guess(10, 1, 2), _guess(10, 1, 2, 3)
    origins.sent(one)
    origins.sent(two)
    assert _tell(origins, 10, 9, answered=one) == [CORRECTION]
    assert _tell(origins, 11, 2, answered=two, recorded=99) == [OWN]


def test_the_answer_has_the_last_word() -> None:
    """Two guesses were answered in one pass, and the stream told of it first."""
    origins, one, two = Origins(), _guess(10, 1), _guess(10, 1, 2, 3)
    origins.sent(one)
    origins.sent(two)
    assert _tell(origins, 10, 1, 2, 3, 4) == [ACCEPTED, FREE, ACCEPTED, FREE]
    settled = list(origins.settle(two, 10, [1, 2, 3, 4]))
    assert settled == [(ACCEPTED, ACCEPTED), (FREE, ACCEPTED), (ACCEPTED, ACCEPTED), (FREE, FREE)]


def test_under_a_rule_by_which_no_draft_stands_none_is_accepted() -> None:
    origins, guess = Origins(accepts=False), _guess(10, 1, 2)
    origins.sent(guess)
    assert _tell(origins, 10, 1, answered=guess) == [CORRECTION]
