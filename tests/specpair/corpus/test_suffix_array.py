"""A suffix array finds the longest match of the last tokens in other texts, as a search of all places does."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specpair.corpus.suffix_array import LONGEST, NO_TOKEN, SuffixArray, joined, sorted_places

TOKEN = st.integers(0, 2)
TEXTS = st.lists(
    st.lists(TOKEN, max_size=30) | st.builds(lambda text: text * 20, st.lists(TOKEN, max_size=4)), max_size=4
)


def common(one: list[int], other: list[int]) -> int:
    """How many tokens at the ends are equal."""
    length = 0
    while length < min(len(one), len(other), LONGEST) and one[-1 - length] == other[-1 - length]:
        length += 1
    return length


@given(TEXTS, st.lists(TOKEN, min_size=1, max_size=LONGEST))
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


@given(TEXTS)
def test_places_are_sorted_by_what_is_compared(texts: list[list[int]]) -> None:
    backwards = joined([np.asarray(text, np.uint32) for text in texts])
    places, tokens = sorted_places(backwards).tolist(), backwards.tolist()
    assert sorted(places) == list(range(len(tokens)))
    begins = [tokens[at : at + LONGEST] for at in places]
    assert begins == sorted(begins)


def test_broken_data_gives_wrong_matches_and_no_error() -> None:
    for data, places in ((b"", [0, 1, 2]), (bytes(999), [-5, 10**6, 3]), (b"\xff" * 99, [0, 1, 7])):
        array = SuffixArray(data, 0, places)
        _, found = array.matches([1, 2, 3])
        assert all(isinstance(array.token(place), int) for place in found)
