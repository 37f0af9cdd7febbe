"""N-gram lookup predicts what followed the last tokens earlier, and measures how often that is right."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.drafts.ngram import NgramIndex

TOKENS = st.lists(st.integers(0, 3), max_size=60)


def index_of(tokens: Sequence[int]) -> NgramIndex:
    index = NgramIndex()
    index.extend(tokens)
    return index


def random_tokens(count: int, kinds: int) -> list[int]:
    """Pseudo-random tokens."""
    state, tokens = 1, []
    for _ in range(count):
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        tokens.append((state >> 16) % kinds)
    return tokens


def test_longest_match_wins_and_of_equal_ones_the_latest() -> None:
    text = [1, 2, 3, 4, 50, 9, 3, 4, 60, 7, 7, 1, 2, 3, 4]
    found = index_of(text).predict()
    assert found is not None and found.token == 50, "the latest '3 4' is a shorter match"
    assert found.runner_up == 60
    found = index_of([3, 4, 50, 8, 3, 4, 60, 9, 3, 4]).predict()
    assert found is not None and (found.token, found.runner_up) == (60, 50)


def test_lookup_continues_behind_a_tail_and_within_it() -> None:
    index = index_of([5, 6, 7, 8, 9, 1, 5, 6])
    assert [found and found.token for found in (index.predict(), index.predict([7]), index.predict([7, 8]))] == [
        7,
        8,
        9,
    ]
    loop = index_of([2, 3])
    assert [found and found.token for found in (loop.predict([2]), loop.predict([2, 3]), loop.predict([2, 3, 2]))] == [
        3,
        2,
        3,
    ]


def test_without_a_match_there_is_no_prediction() -> None:
    assert NgramIndex().predict() is None
    assert index_of([1]).predict() is None
    assert index_of([1, 2, 3]).predict([9]) is None


@given(TOKENS, st.lists(st.integers(0, 3), max_size=8))
def test_prediction_followed_the_longest_indexed_match(text: list[int], tail: list[int]) -> None:
    whole = [*text, *tail]
    found = index_of(text).predict(tail)
    ends = [
        size
        for size in (4, 3, 2, 1)
        for at in range(size, min(len(text), len(whole) - 1) + 1)
        if size <= len(whole) and whole[at - size : at] == whole[-size:]
    ]
    assert (found is None) == (not ends)
    if found is not None:
        size = max(ends)
        follow = {
            whole[at] for at in range(size, len(whole)) if at <= len(text) and whole[at - size : at] == whole[-size:]
        }
        assert found.token in follow
        behind_latest: set[int | None] = set()  # behind the latest four places of each n-gram
        for size in (4, 3, 2, 1):
            places = [
                at for at in range(size, len(whole)) if at <= len(text) and whole[at - size : at] == whole[-size:]
            ]
            behind_latest |= {whole[at] for at in places[-4:]}
        assert found.runner_up in (behind_latest - {found.token} or {None})
        assert 0.0 < found.confidence < 1.0


@given(TOKENS, st.integers(0, 60))
def test_text_may_be_added_in_pieces(text: list[int], cut: int) -> None:
    pieces = NgramIndex()
    pieces.extend(text[:cut])
    pieces.extend(text[cut:])
    assert len(pieces) == len(text)
    assert pieces.predict() == index_of(text).predict()


def test_confidence_is_the_share_of_right_predictions() -> None:
    repeating = list(range(100, 120)) * 30
    found = index_of(repeating).predict()
    assert found is not None and found.token == repeating[len(repeating) % 20] and found.confidence > 0.9
    found = index_of(random_tokens(600, kinds=8)).predict()  # every pair of tokens occurs, and predicts nothing
    assert found is not None and found.confidence < 0.3


def test_confidence_after_a_long_prompt_comes_from_its_last_tokens() -> None:
    """Only the last tokens of one addition are predicted, which bounds the time for a prompt."""
    last = [9, *range(100, 2097), 100, 101]  # only its end occurred before
    assert len(last) == 2000
    at_once, in_turn = set(), set()
    for first in ([0, 1] * 500, random_tokens(1000, kinds=2)):
        index = index_of([*first, *last])
        at_once.add(index.predict())
        index = index_of(first)
        index.extend(last)
        in_turn.add(index.predict())
    assert len(at_once) == 1
    assert len(in_turn) == 2, "earlier tokens count where they were added on their own"


def test_matching_tokens_that_could_not_be_others_say_nothing() -> None:
    index = index_of([9, 1, 2, 3, 4, 5, 6, 7, 50])
    found = [index.predict([9, 1, 2, 3, 4, 5, 6, 7], forced) for forced in (0, 4, 7, 20)]
    assert all(each is not None and each.token == 50 for each in found)
    chances = [each.confidence for each in found if each is not None]
    assert chances == sorted(chances, reverse=True) and chances[0] > chances[1] > chances[2] == chances[3]
