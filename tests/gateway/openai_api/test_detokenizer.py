"""Detokenization: no character is shown in parts or lost, and nothing behind the first stop string comes out."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import BEGIN, END, ByteVocabulary
from gateway.openai_api.detokenizer import Detokenizer, StopStrings


def _pieces(ids: list[int]) -> list[str]:
    """The text of each token, then what the whole text has more: an unfinished character."""
    stream = Detokenizer(ByteVocabulary())
    pieces = [stream.feed(token) for token in ids]
    assert stream.text.startswith("".join(pieces))
    return [*pieces, stream.text.removeprefix("".join(pieces))]


@pytest.mark.parametrize("character", ["a", "é", "€", "😀"])
def test_character_appears_once_with_its_last_token(character: str) -> None:
    ids = list(character.encode())
    assert _pieces(ids) == [""] * (len(ids) - 1) + [character, ""]


@given(st.binary())
def test_invalid_utf8_is_replaced_as_python_does(data: bytes) -> None:
    assert "".join(_pieces(list(data))) == data.decode(errors="replace")


def test_control_tokens_have_no_text_and_do_not_break_characters() -> None:
    first, second = "é".encode()
    assert _pieces([BEGIN, first, second, END]) == ["", "", "é", "", ""]
    assert "".join(_pieces([first, END, second])) == "é"


TEXTS = st.text(alphabet="abé", max_size=30)
STOPS = st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=4)


def _fed(text: str, stops: list[str], cuts: list[int]) -> tuple[str, bool]:
    stopper, out, bounds = StopStrings(stops), "", [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for begin, end in pairwise(bounds):
        out += stopper.feed(text[begin:end])
        if stopper.found is not None:
            return out, True
    return out + stopper.end(), False


def _cut(text: str, stops: list[str]) -> tuple[str, bool]:
    """The definition: the stop string that is complete first, and of these the one that began first."""
    for end in range(1, len(text) + 1):
        begins = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if begins:
            return text[: min(begins)], True
    return text, False


@given(TEXTS, STOPS, st.lists(st.integers(0, 30), max_size=8))
def test_the_text_ends_before_the_first_stop_string_for_every_division(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    assert _fed(text, stops, cuts) == _cut(text, stops)


@given(TEXTS, STOPS)
def test_what_cannot_begin_a_stop_string_is_not_held_back(text: str, stops: list[str]) -> None:
    if _cut(text, stops)[1]:
        return
    stopper = StopStrings(stops)
    held = text[len(stopper.feed(text)) :]
    assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)
