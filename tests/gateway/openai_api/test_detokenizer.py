"""Incremental detokenization: no character is shown in parts, and none is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import BEGIN, END, ByteVocabulary
from gateway.openai_api.detokenizer import Detokenizer


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
