"""What follows the longest match of a text, in files and in earlier texts of its scope."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.corpus.earlier_texts import KEPT, MOST_SALTS, MOST_TOKENS, EarlierTexts
from specpair.corpus.lookup import CorpusLookup
from specpair.corpus.suffix_array import LONGEST, NO_TOKEN, SuffixArray, joined, sorted_positions

TOKEN = st.integers(0, 2)
ARRAYS = st.lists(
    st.lists(TOKEN, max_size=30) | st.builds(lambda text: text * 20, st.lists(TOKEN, max_size=4)), max_size=4
)


def common(one: list[int], other: list[int]) -> int:
    """How many tokens at the ends are equal."""
    length = 0
    while length < min(len(one), len(other), LONGEST) and one[-1 - length] == other[-1 - length]:
        length += 1
    return length


@given(ARRAYS, st.lists(TOKEN, min_size=1, max_size=LONGEST))
def test_the_longest_match_is_found(texts: list[list[int]], recent: list[int]) -> None:
    array = SuffixArray.of(texts)
    length, places = array.matches(recent[::-1])
    ends = [(common(text[:at], recent), text, at) for text in texts for at in range(1, len(text) + 1)]
    assert length == max((each for each, *_ in ends), default=0)
    follow = {text[at] if at < len(text) else NO_TOKEN for each, text, at in ends if each == length}
    if length:
        found = {array.token(place) for place in places}
        assert found and found <= follow
        if len(ends) <= 16:
            assert found == follow, "few places are all compared"
        for place in places:  # and behind a place comes the one before it
            while (token := array.token(place)) != NO_TOKEN:
                assert token in range(3)
                place -= 1
    else:
        assert places == []


@given(ARRAYS)
def test_places_are_sorted_by_what_is_compared(texts: list[list[int]]) -> None:
    backwards = joined([np.asarray(text, np.uint32) for text in texts])
    places, tokens = sorted_positions(backwards).tolist(), backwards.tolist()
    assert sorted(places) == list(range(len(tokens)))
    begins = [tokens[at : at + LONGEST] for at in places]
    assert begins == sorted(begins)


def test_broken_data_gives_wrong_matches_and_no_error() -> None:
    for data, places in ((b"", [0, 1, 2]), (bytes(999), [-5, 10**6, 3]), (b"\xff" * 99, [0, 1, 7])):
        array = SuffixArray(data, 0, places)
        _, found = array.matches([1, 2, 3])
        assert all(isinstance(array.token(place), int) for place in found)


SIZE = 1000
TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=30), max_size=3)
TAIL = st.lists(st.integers(0, 2), max_size=8)


def lookup(*texts: list[int]) -> CorpusLookup:
    return CorpusLookup([SuffixArray.of([text]) for text in texts], SIZE)


def test_what_follows_the_longest_match_in_any_array_is_predicted_and_followed() -> None:
    found = lookup([1, 2, 3, 50, 51, 52], [9, 1, 2, 3, 60, 61, 62])
    found.extend([7, 1, 2, 3])
    assert {token for token, _ in found.predict(most=2)} == {50, 60}
    assert [token for token, _ in found.predict([60])] == [61]
    assert [token for token, _ in found.predict([50, 51])] == [52]
    found.extend([60])
    assert [token for token, _ in found.predict()] == [61]
    assert found.predict([61, 62]) == [], "the file ends"
    assert len(found) == 5


def test_short_matches_other_tokens_and_no_files_give_nothing() -> None:
    found = lookup([1, 2, 3, 4])
    found.extend([1, 2])
    assert found.predict() == []
    beyond = lookup([1, 2, 3, SIZE])
    beyond.extend([1, 2, 3])
    assert beyond.predict() == [], "no token beyond the vocabulary is drafted"
    none = CorpusLookup([], SIZE)
    none.extend([1, 2, 3])
    assert none.predict([4]) == [] and len(none) == 3


@given(TEXTS, st.lists(st.integers(0, 2), max_size=20), TAIL)
def test_a_tail_continues_as_the_text_would(texts: list[list[int]], text: list[int], tail: list[int]) -> None:
    one, other = lookup(*texts), lookup(*texts)
    one.extend(text)
    for end in range(len(tail)):  # a path grows token by token
        one.predict(tail[:end])
    found = one.predict(tail, most=3)
    assert found == one.predict(tail, most=3)
    for token in (*text, *tail):
        other.extend([token])
    assert [token for token, _ in found] == [token for token, _ in other.predict(most=3)]
    assert all(0.0 < chance < 1.0 for _, chance in found)


def test_the_chance_is_the_share_of_right_predictions() -> None:
    file = [*range(100, 400)]
    good, bad = lookup(file), lookup(file)
    good.extend(file[:200])
    assert good.predict()[0][1] > 0.9
    for at in range(0, 297, 3):
        bad.extend([*file[at : at + 3], 0])  # three tokens match, and another one follows
    bad.extend(file[:3])
    assert bad.predict()[0][1] < 0.05


def test_matching_tokens_that_could_not_be_others_say_nothing() -> None:
    found = lookup([*range(20)])
    found.extend([*range(18)])
    chances = [found.predict(forced=forced)[0][1] for forced in (0, 14, 40)]
    assert chances == sorted(chances, reverse=True) and chances[0] > chances[2]


IDS = 100_000
MINE, YOURS = ("me", ""), ("you", "")


class Texts(EarlierTexts):
    """At a time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(lambda: self.now)

    def found(self, scope: tuple[str, str], *tokens: int) -> set[int]:
        """What is predicted behind some tokens."""
        lookup = self.lookup(scope, IDS)
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
    assert earlier.lookup(other, IDS) is None


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
    assert earlier.lookup(("you", "0"), IDS) is None and earlier.found(("you", "1"), 1, 2, 3) == {4}
    assert earlier.found(MINE, 1, 2, 3) == {4}


def test_an_owner_that_comes_no_more_is_forgotten(earlier: Texts) -> None:
    earlier.add(MINE, [1, 2, 3, 4])
    earlier.now = KEPT - 1.0
    earlier.add(YOURS, [1, 2, 3, 4])
    assert earlier.found(MINE, 1, 2, 3) == {4}
    earlier.now = KEPT
    earlier.add(("another", ""), [1, 2, 3, 4])
    assert earlier.lookup(MINE, IDS) is None and earlier.found(YOURS, 1, 2, 3) == {4}
