"""Tokenizes text for a vocabulary of which only the bytes are known: byte-pair merging in the order of ids.

A drafter for another vocabulary knows the bytes of its tokens, but not its merge rules. BPE training adds tokens in the
order of their merges, so the id of a merged pair is its priority. Tokens merge only within words, numbers and spaces,
and nearly all vocabularies split these by the same pattern. The result equals that of the vocabulary's own tokenizer in
all but rare cases. In these, the target rejects a draft token; nothing else happens.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

_LETTERS = r"[^\W\d_]"
_LONGEST = 32  # characters of a word that are merged; longer words are cut


class BytePairs:
    """Encodes texts in the tokens of a vocabulary."""

    def __init__(self, pieces: Mapping[int, bytes], remembered: int = 4096) -> None:
        """`pieces`: the bytes of each ordinary token, by token id.
        `remembered`: words whose tokens are kept in memory.
        """
        self._ids: dict[bytes, int] = {}
        for token in sorted(pieces, reverse=True):  # of tokens with equal bytes, the lowest id
            if pieces[token]:
                self._ids[pieces[token]] = token
        self._words = _word_pattern([piece for piece in self._ids if piece.isdigit()])
        self._merged = lru_cache(maxsize=remembered)(self._merge)

    def split(self, text: str) -> list[str]:
        """Split `text` into words, numbers, punctuation and spaces, across which no token reaches."""
        return self._words.findall(text)

    def encode(self, text: str) -> list[int]:
        """The token ids of `text`; bytes without a token are left out."""
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
        for char in map(str.encode, word):  # a character with a token of its own is never split into bytes
            parts += [char] if char in self._ids else [char[at : at + 1] for at in range(len(char))]
        while True:
            ranked = ((self._ids.get(left + right), at) for at, (left, right) in enumerate(pairwise(parts)))
            best = min(((token, at) for token, at in ranked if token is not None), default=None)
            if best is None:
                return tuple(self._ids[part] for part in parts if part in self._ids)
            at = best[1]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]


def _word_pattern(numbers: Sequence[bytes]) -> re.Pattern[str]:
    """The split pattern of Llama 3 and its successors; numbers are cut to the length of the longest number token."""
    digits = max((len(number) for number in numbers), default=1)
    return re.compile(
        rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\w]?{_LETTERS}+|_{_LETTERS}+|\d{{1,{min(digits, 3)}}}"
        rf"| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+|."
    )
