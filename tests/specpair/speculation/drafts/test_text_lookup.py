"""A lookup in the text predicts what followed the last tokens earlier, and measures how often that is right."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.drafts.text_lookup import TextLookup

TOKENS = st.lists(st.integers(0, 3), max_size=60)


def lookup_in(tokens: Sequence[int]) -> TextLookup:
    lookup = TextLookup()
    lookup.extend(tokens)
    return lookup


def predicted(lookup: TextLookup, tail: Sequence[int] = (), most: int = 1) -> list[int]:
    return [token for token, _ in lookup.predict(tail, most=most)]


def random_tokens(count: int, kinds: int) -> list[int]:
    """Pseudo-random tokens."""
    state, tokens = 1, []
    for _ in range(count):
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        tokens.append((state >> 16) % kinds)
    return tokens


def places(text: list[int], word: Sequence[int]) -> list[int]:
    """Where the word ends in the text with something behind it."""
    return [at for at in range(len(word), len(text)) if text[at - len(word) : at] == [*word]]


def test_longest_match_wins_and_of_equal_ones_the_latest() -> None:
    text = [1, 2, 3, 4, 50, 9, 3, 4, 60, 7, 7, 1, 2, 3, 4]
    assert predicted(lookup_in(text), most=2) == [50, 60], "the latest '3 4' is a shorter match"
    assert predicted(lookup_in([3, 4, 50, 8, 3, 4, 60, 9, 3, 4]), most=2) == [60, 50]
    assert predicted(lookup_in([3, 4, 50, 8, 3, 4, 60, 9, 3, 4, 50, 8, 3, 4, 70, 3, 4]), most=3) == [70, 50, 60]


def test_lookup_continues_behind_a_tail() -> None:
    lookup = lookup_in([5, 6, 7, 8, 9, 1, 5, 6])
    assert [predicted(lookup, tail) for tail in ([], [7], [7, 8], [7, 8, 9, 1, 5, 6])] == [[7], [8], [9], [7]]
    loop = lookup_in([2, 3, 2, 3])
    assert [predicted(loop, tail) for tail in ([2], [2, 3], [2, 3, 2], [2, 3, 2, 3])] == [[3], [2], [3], [2]]


def test_without_a_match_there_is_no_prediction() -> None:
    assert predicted(TextLookup()) == predicted(TextLookup(), [1]) == []
    assert predicted(lookup_in([1])) == []
    assert predicted(lookup_in([1, 2, 3]), [9]) == []
    assert predicted(lookup_in([1, 1]), most=0) == []


@given(TOKENS, st.lists(st.integers(0, 3), max_size=8), st.integers(1, 3))
def test_predictions_followed_the_longest_matches(text: list[int], tail: list[int], most: int) -> None:
    """Against a search of all places. The tail is asked for at once, and token by token as a draft grows."""
    whole = [*text, *tail]
    matching = [whole[-size:] for size in range(len(whole), 0, -1) if places(text, whole[-size:])]
    lookup = lookup_in(text)
    found = lookup.predict(tail, most=most)
    grown = lookup_in(text)
    for end in range(len(tail)):
        grown.predict(tail[:end])
    assert grown.predict(tail, most=most) == found
    tokens = [token for token, _ in found]
    follow = {text[at] for word in matching for at in places(text, word)}
    assert len({*tokens}) == len(tokens) == min(most, len(follow))
    for rank, token in enumerate(tokens):  # each followed the longest match that was followed by no other but those
        behind = next(new for word in matching if (new := {text[at] for at in places(text, word)} - {*tokens[:rank]}))
        assert token in behind
    assert all(0.0 < chance < 1.0 for _, chance in found)
    assert lookup.predict([], most=most) == lookup_in(text).predict([], most=most), "a tail leaves nothing behind"


@given(TOKENS, st.integers(0, 60))
def test_text_may_be_added_in_pieces(text: list[int], cut: int) -> None:
    pieces = TextLookup()
    pieces.extend(text[:cut])
    pieces.extend(text[cut:])
    assert len(pieces) == len(text)
    assert pieces.predict(most=3) == lookup_in(text).predict(most=3)


def test_confidence_is_the_share_of_right_predictions() -> None:
    repeating = list(range(100, 120)) * 30
    ((token, chance),) = lookup_in(repeating).predict()
    assert token == repeating[len(repeating) % 20] and chance > 0.9
    ((_, chance),) = lookup_in(random_tokens(600, kinds=8)).predict()  # every pair occurs, and predicts nothing
    assert chance < 0.3


def test_confidence_of_a_further_choice_is_measured_too() -> None:
    turns = [7, 8, 1, 7, 8, 2] * 60  # behind 7 8 comes what came the time before the last
    lookup = lookup_in(turns)
    (first, sure), (second, less) = lookup_in([*turns, 9, 7, 8]).predict(most=2)
    assert {first, second} == {1, 2}
    assert less > lookup_in([7, 8, 1, 7, 8, 2]).predict([7, 8], most=2)[1][1] and 0 < sure + less <= 1.0
    assert lookup.predict(most=3)[0][0] == 7


def test_confidence_after_a_long_prompt_comes_from_its_last_tokens() -> None:
    """Only the last tokens of one addition are predicted, which bounds the time for a prompt."""
    last = [9, *range(100, 2097), 100, 101]  # only its end occurred before
    assert len(last) == 2000
    at_once, in_turn = set(), set()
    for first in ([*[0, 1] * 500, 8], [*random_tokens(1000, kinds=2), 8]):  # nothing followed an 8
        at_once.add(lookup_in([*first, *last]).predict()[0])
        lookup = lookup_in(first)
        lookup.extend(last)
        in_turn.add(lookup.predict()[0])
    assert len(at_once) == 1
    assert len(in_turn) == 2, "earlier tokens count where they were added on their own"


def test_matching_tokens_that_could_not_be_others_say_nothing() -> None:
    lookup = lookup_in([9, 1, 2, 3, 4, 5, 6, 7, 50])
    found = [lookup.predict([9, 1, 2, 3, 4, 5, 6, 7], forced)[0] for forced in (0, 4, 7, 20)]
    assert [token for token, _ in found] == [50] * 4
    chances = [chance for _, chance in found]
    assert chances == sorted(chances, reverse=True) and chances[0] > chances[1] > chances[2] == chances[3]
