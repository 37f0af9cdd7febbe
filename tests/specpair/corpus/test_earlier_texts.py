"""Earlier texts are found in their own scope, the latest ones, each once."""

import pytest

from specpair.corpus.earlier_texts import KEPT, MOST_SALTS, MOST_TOKENS, EarlierTexts

SIZE = 100_000
MINE, YOURS = ("me", ""), ("you", "")


class Texts(EarlierTexts):
    """At a time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(lambda: self.now)

    def found(self, scope: tuple[str, str], *tokens: int) -> set[int]:
        """What is predicted behind some tokens."""
        lookup = self.lookup(scope, SIZE)
        if lookup is None:
            return set()
        lookup.extend(tokens)
        return {token for token, _ in lookup.predict(most=3)}


@pytest.fixture
def earlier() -> Texts:
    return Texts()


@pytest.mark.parametrize("other", [YOURS, ("me", "another salt"), ("", "")])
def test_what_followed_in_an_earlier_text_is_found_in_its_scope_only(earlier: Texts, other: tuple[str, str]) -> None:
    earlier.add(MINE, [*range(20)])
    assert earlier.found(MINE, 3, 4, 5) == {6}
    assert earlier.found(MINE, 19, 18, 17) == set()
    assert earlier.lookup(other, SIZE) is None


def test_a_text_takes_the_place_of_those_that_it_begins_with(earlier: Texts) -> None:
    for end in (6, 8, 10):
        earlier.add(MINE, [*range(end)])
    assert earlier.found(MINE, 3, 4, 5) == {6}, "what followed 5 once is counted once, and the end of a text never"
    earlier.add(MINE, [3, 4, 5, 99])
    assert earlier.found(MINE, 3, 4, 5) == {6, 99}


def test_the_oldest_tokens_are_forgotten(earlier: Texts) -> None:
    length = MOST_TOKENS // 40
    texts = [[*range(number * length, (number + 1) * length)] for number in range(60)]
    for text in texts:
        earlier.add(MINE, text)
    known = [earlier.found(MINE, *text[:3]) == {text[3]} for text in texts]
    assert known == sorted(known) and 30 <= sum(known) <= 40
    earlier.add(MINE, [*range(5, 7)] * (MOST_TOKENS // 2))
    assert earlier.found(MINE, *texts[-1][:3]) == set() and earlier.found(MINE, 5, 6, 5) == {6}


def test_an_owner_has_so_many_salts_whatever_others_do(earlier: Texts) -> None:
    earlier.add(MINE, [1, 2, 3, 4])
    for number in range(MOST_SALTS):
        earlier.add(("you", f"{number}"), [1, 2, 3, 4])
        earlier.add((f"owner {number}", ""), [1, 2, 3, 4])
    earlier.add(YOURS, [1, 2, 3, 4])
    assert earlier.lookup(("you", "0"), SIZE) is None and earlier.found(("you", "1"), 1, 2, 3) == {4}
    assert earlier.found(MINE, 1, 2, 3) == {4}


def test_an_owner_that_comes_no_more_is_forgotten(earlier: Texts) -> None:
    earlier.add(MINE, [1, 2, 3, 4])
    earlier.now = KEPT - 1.0
    earlier.add(YOURS, [1, 2, 3, 4])
    assert earlier.found(MINE, 1, 2, 3) == {4}
    earlier.now = KEPT
    earlier.add(("another", ""), [1, 2, 3, 4])
    assert earlier.lookup(MINE, SIZE) is None and earlier.found(YOURS, 1, 2, 3) == {4}


def test_a_text_without_tokens_is_none(earlier: Texts) -> None:
    earlier.add(MINE, [])
    assert earlier.lookup(MINE, SIZE) is None
