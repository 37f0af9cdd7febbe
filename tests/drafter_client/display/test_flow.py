"""A text on a terminal: rows begin with whole words, joined emoji are written in one piece, and nothing is lost."""

import io
import textwrap
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from drafter_client.display.flow import Emoji, StyledText, WordWrap
from tests.terminal.screen import Screen

WIDTH = 12
WORDS = st.lists(st.sampled_from(["a", "word", "longer", "exactlytwelv"]), min_size=1, max_size=12)
PARTS = st.lists(st.text(st.sampled_from("ab \n漢é"), max_size=WIDTH + 3), max_size=12)
FAMILY, FLAG, THUMB, REGION = "👩\u200d👩\u200d👧", "🇩🇪", "👍🏽", "🏴\U000e0067\U000e0062\U000e007f"


def _shown(parts: list[str]) -> list[str]:
    """The screen after the parts of a text, each in another style."""
    wrap, console = WordWrap(lambda: WIDTH), Console(file=io.StringIO(), force_terminal=True, width=WIDTH)
    for number, part in enumerate(parts):
        for piece in wrap.feed(part, ("red", "green")[number % 2]):
            if piece.erased is not None:
                console.file.write(f"\r\x1b[{piece.erased}C\x1b[K")
            console.print(Text(piece.text, piece.style), end="", soft_wrap=True)
    screen = Screen(WIDTH)
    screen.feed(console.file.getvalue())  # type: ignore[attr-defined]
    return screen.lines


def _cut(text: str, cuts: list[int]) -> list[str]:
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[begin:end] for begin, end in pairwise(bounds)]


@given(WORDS, st.lists(st.integers(0, 100), max_size=20))
def test_rows_break_between_words_however_the_text_comes(words: list[str], cuts: list[int]) -> None:
    text = " ".join(words)
    assert _shown(_cut(text, cuts)) == textwrap.wrap(text, WIDTH)


@given(PARTS)
def test_no_character_is_lost_or_moved(parts: list[str]) -> None:
    bare = "".join("".join(parts).split())
    assert "".join("".join(_shown(parts)).split()) == bare


def test_a_word_that_is_longer_than_a_row_begins_one_and_is_split() -> None:
    assert _shown(["one ", "abcdefgh", "ijklmnop"]) == ["one", "abcdefghijkl", "mnop"]
    assert [line.count("漢") for line in _shown(["漢" * 8])] == [6, 2]


@pytest.mark.parametrize("emoji", [FAMILY, FLAG, THUMB, REGION, "❤\ufe0f"])
def test_a_joined_emoji_is_written_in_one_piece_and_in_one_style(emoji: str) -> None:
    for cut in range(1, len(emoji)):
        joined = Emoji()
        pieces = [*joined.feed("a" + emoji[:cut], "red"), *joined.feed(emoji[cut:] + "b", "green")]
        assert pieces == [StyledText("a", "red"), StyledText(emoji, "red"), StyledText("b", "green")]


def test_emoji_that_are_not_joined_keep_their_styles() -> None:
    joined = Emoji()
    pieces = [
        *joined.feed("👩", "red"),
        *joined.feed("👩", "green"),
        *joined.feed("🇩🇪🇫", "red"),
        *joined.feed("🇷.", ""),
    ]
    assert pieces == [
        StyledText("👩", "red"),
        StyledText("👩", "green"),
        StyledText("🇩🇪", "red"),
        StyledText("🇫🇷", "red"),
        StyledText(".", ""),
    ]


@given(st.lists(st.text(st.sampled_from(["a", " ", "👩", "\u200d", "🇩", "🏽", "\ufe0f", "é"]), max_size=6), max_size=8))
def test_nothing_is_held_back_for_ever(parts: list[str]) -> None:
    joined = Emoji()
    pieces = [piece for part in parts for piece in joined.feed(part, "red")]
    written = "".join(piece.text for piece in [*pieces, *joined.feed("\n", "")])
    assert written == "".join(parts) + "\n"
