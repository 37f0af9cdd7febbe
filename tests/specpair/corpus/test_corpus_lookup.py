"""The lookup of a text in files: what follows the longest match, by how often it does, with a measured chance."""

from hypothesis import given
from hypothesis import strategies as st

from specpair.corpus.lookup import CorpusLookup
from specpair.corpus.suffix_array import SuffixArray

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


def test_the_most_frequent_token_comes_first() -> None:
    found = lookup([1, 2, 3, 50, 0, 1, 2, 3, 60, 0, 1, 2, 3, 60])
    found.extend([8, 1, 2, 3])
    (first, sure), (second, less) = found.predict(most=2)
    assert (first, second) == (60, 50) and sure > less > 0


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
