"""Tokens to text as they come: no character is shown in halves, and none is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import BEGIN, END, ByteVocabulary
from drafter_client.generation.detokenize import TextStream


def _pieces(ids: list[int]) -> list[str]:
    stream = TextStream(ByteVocabulary())
    return [*(stream.feed(token) for token in ids), stream.rest()]


@pytest.mark.parametrize("character", ["a", "é", "€", "😀"])
def test_a_character_appears_once_with_its_last_token(character: str) -> None:
    ids = list(character.encode())
    assert _pieces(ids) == [""] * (len(ids) - 1) + [character, ""]


@given(st.text("aé€😀\n\0", max_size=30))
def test_the_pieces_make_up_the_text(text: str) -> None:
    assert "".join(_pieces(list(text.encode()))) == text


@given(st.binary())
def test_bytes_that_are_no_text_become_what_python_makes_of_them(data: bytes) -> None:
    assert "".join(_pieces(list(data))) == data.decode(errors="replace")


def test_an_unfinished_character_leaves_one_mark_behind() -> None:
    assert _pieces(list("a😀".encode())[:-1]) == ["a", "", "", "", "\ufffd"]


def test_a_broken_character_does_not_swallow_what_follows() -> None:
    assert "".join(_pieces([0xF0, 0x9F, ord("a"), ord("b")])) == "\ufffdab"


def test_control_tokens_have_no_text_and_do_not_break_a_character() -> None:
    first, second = "é".encode()
    assert _pieces([BEGIN, first, second, END]) == ["", "", "é", "", ""]
    assert "".join(_pieces([first, END, second])) == "é"


def test_ids_beyond_the_vocabulary_are_shown_as_unknown() -> None:
    assert _pieces([ord("a"), 258, 5_000, ord("b")]) == ["a", "\ufffd", "\ufffd", "b", ""]
