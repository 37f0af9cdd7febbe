"""Untrusted text keeps no character that a terminal obeys."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.protocol.terminal_text import one_line, several_lines

TEXTS = st.text(st.characters(codec=None, categories=["Cc", "Cf", "Cs", "L", "P", "Z", "So"]))


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b]0;pwned\x07", r"\x1b]0;pwned\x07"),
        ("\x9b31mred", r"\x9b31mred"),  # CSI as one character
        ("a\rb\x08c\x7f", r"a\rb\x08c\x7f"),
        ("abc\u202etxt.exe", r"abc\u202etxt.exe"),
        ("\u2066x\u2069", r"\u2066x\u2069"),
        ("a\u2028b", r"a\u2028b"),
        ("half \ud800", r"half \ud800"),
        ("\x00", r"\x00"),
    ],
)
def test_control_characters_are_escaped(hostile: str, shown: str) -> None:
    assert one_line(hostile) == shown
    assert several_lines(hostile) == shown


def test_ordinary_text_is_unchanged() -> None:
    text = "naïve Ω 中文 ｜▁ 👩\u200d💻 می\u200cرود שלום\u200f 10\u00a0km"
    assert several_lines(text) == text
    assert one_line("Qwen2.5-0.5B ｜▁ é") == "Qwen2.5-0.5B ｜▁ é"


@given(TEXTS)
def test_output_has_no_control_characters(text: str) -> None:
    assert one_line(text).isprintable()
    assert not [
        character
        for character in several_lines(text)
        if unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t"
    ]


@given(TEXTS, TEXTS)
def test_text_may_be_passed_in_pieces(first: str, second: str) -> None:
    assert several_lines(first) + several_lines(second) == several_lines(first + second)
