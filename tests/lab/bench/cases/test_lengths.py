"""A text gets the length at which it has the wanted number of tokens."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from lab.bench.cases.case import Prompt
from lab.bench.cases.lengths import characters_for


@given(st.integers(1, 5000), st.integers(1, 12), st.integers(0, 40))
def test_the_longest_text_that_fits_is_found(tokens: int, per_token: int, around: int) -> None:
    async def count(characters: int) -> int:
        return around + characters // per_token

    found = asyncio.run(characters_for(tokens, count))
    if around + 1 // per_token > tokens:
        assert found == 1
    else:
        assert asyncio.run(count(found)) == tokens


@given(st.text(min_size=1, max_size=9), st.integers(1, 60))
def test_a_text_is_cut_or_repeated_behind_what_stands_before(text: str, characters: int) -> None:
    made = Prompt(before="Go on: ", text=text).cut_to(characters)
    assert made.startswith("Go on: ")
    kept = made.removeprefix("Go on: ")
    assert len(kept) == characters
    assert all(each == text[at % len(text)] for at, each in enumerate(kept))
