"""A text on its way to a terminal: lines break between words, and joined emoji stay one where colours change."""

import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from rich.cells import cell_len

_JOINER = "\u200d"
_EXTENDING = frozenset((_JOINER, "\ufe0e", "\ufe0f", "\u20e3", *map(chr, range(0x1F3FB, 0x1F400))))
_TAGS = range(0xE0020, 0xE0080)  # of the flags of regions
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)


class StyledText(NamedTuple):
    """What to write next.

    `erased`: cells of the present row that stay, before the rest is erased and another row begins; None: nothing is
        erased.
    """

    text: str
    style: str
    erased: int | None = None


class Emoji:
    """Holds an emoji back until it is known that the next token does not go on with it.

    Terminals show joined characters as one only if nothing stands between them, such as a change of the colour.
    """

    def __init__(self) -> None:
        self._held = StyledText("", "")

    def feed(self, text: str, style: str) -> list[StyledText]:
        """The pieces that can be written now. Characters that go on with an emoji get its style."""
        held, before = self._held.text, self._held.style
        at = 0
        while held and at < len(text) and _goes_on(held, text[at]):
            held += text[at]
            at += 1
        self._held = StyledText(held, before)
        if at == len(text):
            return []
        begin = at
        cluster = ""
        for index in range(at, len(text)):
            character = text[index]
            if not (cluster and _goes_on(cluster, character)):
                cluster, begin = "", index
            if cluster or unicodedata.category(character) == "So":
                cluster += character
        self._held = StyledText(cluster, style)
        kept = text[at:begin] if cluster else text[at:]
        return [piece for piece in (StyledText(held, before), StyledText(kept, style)) if piece.text]

    def flush(self) -> list[StyledText]:
        """The emoji that is held back, if any: nothing goes on with it."""
        held, self._held = self._held, StyledText("", "")
        return [held] if held.text else []


def _goes_on(emoji: str, character: str) -> bool:
    """Whether `character` is shown as a part of the emoji before it."""
    if character in _EXTENDING or ord(character) in _TAGS or unicodedata.combining(character):
        return True
    if emoji[-1] == _JOINER:
        return unicodedata.category(character) == "So"
    return len(emoji) == 1 and ord(emoji) in _FLAG_LETTERS and ord(character) in _FLAG_LETTERS


class WordWrap:
    """Begins a row of the terminal with the word that does not fit on the row before. Longer words are split."""

    def __init__(self, width: Callable[[], int]) -> None:
        """`width`: of the terminal, in cells."""
        self._width = width
        self._column = self._begin = 0  # of the cursor, and of the word before it
        self._word: list[StyledText] = []

    def broken(self) -> None:
        """Note that another row has begun."""
        self._column = self._begin = 0
        self._word = []

    def feed(self, text: str, style: str) -> list[StyledText]:
        """What to write for the next part of the text."""
        width, pieces = self._width(), list[StyledText]()
        for character in text:
            cells = cell_len(character)
            if character.isspace():
                full = self._column >= width
                pieces.append(StyledText("\n" if full else character, style))
                self._column = 0 if full or character == "\n" else self._column + cells
                self._begin, self._word = self._column, []
                continue
            if self._column + cells > width:
                pieces += self._next_row(cells, width)
            pieces.append(StyledText(character, style))
            self._column += cells
            self._word.append(pieces[-1])
            if cells > 1:  # scripts with wide characters have no spaces
                self._begin, self._word = self._column, []
        return _merged(pieces)

    def _next_row(self, cells: int, width: int) -> list[StyledText]:
        """What begins a row with the present word, where a character of `cells` cells does not fit."""
        word, begin = self._word, self._begin
        length = self._column - begin
        if begin == 0 or length + cells > width:  # the terminal splits it
            self.broken()
            return []
        self._column, self._begin = length, 0
        return [StyledText("\n", "", begin if word else None), *word]


def _merged(pieces: list[StyledText]) -> list[StyledText]:
    """The pieces, neighbours of one style as one."""
    merged: list[StyledText] = []
    for piece in pieces:
        if merged and piece.erased is None and merged[-1].erased is None and merged[-1].style == piece.style:
            merged[-1] = StyledText(merged[-1].text + piece.text, piece.style)
        else:
            merged.append(piece)
    return merged
