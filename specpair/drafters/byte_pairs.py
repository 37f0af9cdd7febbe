"""Tokenizes text for a vocabulary by the bytes of its tokens: byte-pair merging in the order of ids.

A drafter for another vocabulary knows the bytes of its tokens, but not its merge rules. BPE training adds tokens in the
order of their merges, so the id of a merged pair is its priority. Tokens merge only within words, numbers and spaces,
and nearly all vocabularies split these by the same pattern. The result equals that of the vocabulary's own tokenizer in
all but rare cases. In these, the target rejects a draft token; nothing else happens.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise

_LETTERS = r"[^\W\d_]"
_NONE = sys.maxsize  # greater than the id of any token
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
        self._tokens = _Remembered(self._tokens_of, remembered)

    def split(self, text: str) -> list[str]:
        """Split `text` into words, numbers, punctuation and spaces, across which no token reaches."""
        return self._words.findall(text)

    def encode(self, text: str) -> list[int]:
        """The token ids of `text`; bytes without a token are left out."""
        return list(chain.from_iterable(map(self._tokens.__getitem__, self._words.findall(text))))

    def _tokens_of(self, word: str) -> tuple[int, ...]:
        if len(word) <= _LONGEST:
            return self._merge(word)
        whole = self._ids.get(word.encode())
        parts = (word[at : at + _LONGEST] for at in range(0, len(word), _LONGEST))
        return tuple(chain.from_iterable(map(self._tokens.__getitem__, parts))) if whole is None else (whole,)

    def _merge(self, word: str) -> tuple[int, ...]:
        whole = self._ids.get(word.encode())
        if whole is not None:
            return (whole,)
        parts: list[bytes] = []
        for char in map(str.encode, word):  # a character with a token of its own is never split into bytes
            parts += [char] if char in self._ids else [char[at : at + 1] for at in range(len(char))]
        ranks = [self._ids.get(left + right, _NONE) for left, right in pairwise(parts)]
        while (best := min(ranks, default=_NONE)) < _NONE:
            at = ranks.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del ranks[at]
            for pair in range(max(0, at - 1), min(at + 1, len(ranks))):
                ranks[pair] = self._ids.get(parts[pair] + parts[pair + 1], _NONE)
        return tuple(self._ids[part] for part in parts if part in self._ids)


class _Remembered(dict[str, tuple[int, ...]]):
    """A cache of the tokens of words. When the cache is full, all words are forgotten."""

    def __init__(self, make: Callable[[str], tuple[int, ...]], most: int) -> None:
        super().__init__()
        self._make, self._most = make, most

    def __missing__(self, word: str) -> tuple[int, ...]:
        if len(self) >= self._most:
            self.clear()
        made = self._make(word)
        if len(word) <= _LONGEST:
            self[word] = made
        return made


def _word_pattern(numbers: Sequence[bytes]) -> re.Pattern[str]:
    """The split pattern of Llama 3 and its successors; numbers are cut to the length of the longest number token."""
    digits = max((len(number) for number in numbers), default=1)
    return re.compile(
        rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\w]?{_LETTERS}+|_{_LETTERS}+|\d{{1,{min(digits, 3)}}}"
        rf"| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+|."
    )
