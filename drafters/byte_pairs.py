"""How a vocabulary is likely to write a text, told from its bytes alone: byte-pair merging by id.

Who drafts for another vocabulary has its bytes, not its rules. But tokens were added in the order in which they were
found worth merging, so the id of a merged pair is its priority; and what was never merged was kept apart by a pattern
of words, numbers and spaces that is nearly the same everywhere. A text is written as its own tokenizer would in all but
rare cases; where it is not, a draft falls, and nothing else happens.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

_LETTERS = r"[^\W\d_]"
_LONGEST = 32  # signs of a word that are merged; longer ones are cut


class BytePairs:
    """Writes texts in the tokens of a vocabulary. `pieces`: bytes of each ordinary token by id, each once."""

    def __init__(self, pieces: Mapping[int, bytes]) -> None:
        self._ids: dict[bytes, int] = {}
        for token in sorted(pieces, reverse=True):  # of equal ones, the lowest
            if pieces[token]:
                self._ids[pieces[token]] = token
        self._words = _word_pattern([piece for piece in self._ids if piece.isdigit()])
        self._merged = lru_cache(maxsize=4096)(self._merge)

    def split(self, text: str) -> list[str]:
        """Words, numbers, signs and spaces, none of which shares a token with the next."""
        return self._words.findall(text)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; bytes for which there is no token are left out."""
        return [token for word in self.split(text) for part in self._parts(word) for token in self._merged(part)]

    def _parts(self, word: str) -> list[str]:
        if len(word) <= _LONGEST or word.encode() in self._ids:
            return [word]
        return [word[at : at + _LONGEST] for at in range(0, len(word), _LONGEST)]

    def _merge(self, word: str) -> tuple[int, ...]:
        whole = self._ids.get(word.encode())
        if whole is not None:
            return (whole,)
        parts: list[bytes] = []
        for sign in map(str.encode, word):  # a sign that has a token is nowhere written in bytes
            parts += [sign] if sign in self._ids else [sign[at : at + 1] for at in range(len(sign))]
        while True:
            ranked = ((self._ids.get(left + right), at) for at, (left, right) in enumerate(pairwise(parts)))
            best = min(((token, at) for token, at in ranked if token is not None), default=None)
            if best is None:
                return tuple(self._ids[part] for part in parts if part in self._ids)
            at = best[1]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]


def _word_pattern(numbers: Sequence[bytes]) -> re.Pattern[str]:
    """As Llama 3 and its successors split texts; a number is cut as long as the longest one that has a token."""
    digits = max((len(number) for number in numbers), default=1)
    return re.compile(
        rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\w]?{_LETTERS}+|_{_LETTERS}+|\d{{1,{min(digits, 3)}}}"
        rf"| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+|."
    )
