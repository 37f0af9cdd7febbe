"""Earlier texts are found in their own scope, the latest ones, each once."""

from specpair.corpus.earlier_texts import MOST_SCOPES, MOST_TOKENS, EarlierTexts

SIZE = 10_000


def found(earlier: EarlierTexts, scope: str, *tokens: int) -> list[int]:
    """What is predicted behind some tokens."""
    lookup = earlier.lookup(scope, SIZE)
    if lookup is None:
        return []
    lookup.extend(tokens)
    return [token for token, _ in lookup.predict(most=3)]


def test_what_followed_in_an_earlier_text_is_found_in_its_scope_only() -> None:
    earlier = EarlierTexts()
    earlier.add("mine", [*range(20)])
    assert found(earlier, "mine", 3, 4, 5) == [6]
    assert found(earlier, "mine", 19, 18, 17) == []
    assert earlier.lookup("yours", SIZE) is None


def test_a_text_takes_the_place_of_those_that_it_begins_with() -> None:
    earlier = EarlierTexts()
    for end in (6, 8, 10):
        earlier.add("mine", [*range(end)])
    assert found(earlier, "mine", 3, 4, 5) == [6], "what followed 5 once is counted once, and the end of a text never"
    earlier.add("mine", [3, 4, 5, 99])
    assert {*found(earlier, "mine", 3, 4, 5)} == {6, 99}


def test_the_oldest_tokens_and_scopes_are_forgotten() -> None:
    earlier = EarlierTexts()
    earlier.add("mine", [1, 2, 3, 4])
    earlier.add("mine", [*range(5, 7)] * (MOST_TOKENS // 2))
    assert found(earlier, "mine", 1, 2, 3) == []
    assert found(earlier, "mine", 5, 6, 5) == [6]
    for number in range(MOST_SCOPES):
        earlier.add(f"{number}", [1, 2, 3, 4])
    assert earlier.lookup("mine", SIZE) is None and found(earlier, "0", 1, 2, 3) == [4]


def test_a_text_without_tokens_is_none() -> None:
    earlier = EarlierTexts()
    earlier.add("mine", [])
    assert earlier.lookup("mine", SIZE) is None
