"""Predicts the next token of a text from the user's files, by the longest match of the last tokens.

The chance is measured (`HitRates`): the latest tokens of the text, those of its prompt too, are predicted before they
are taken in, and the outcomes are counted by length of match, and by how many of the matching places agree.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from specpair.corpus.suffix_array import LONGEST, SuffixArray
from specpair.speculation.drafting.text_lookup import HitRates, kind_of

_LEAST = 3  # tokens of the shortest match that counts
_TRIED = 100  # latest added tokens that are predicted before they are added
_PRIOR = (0.05, 0.1, 0.25, 0.4, 0.55, 0.65)  # prior chance of a right prediction, by bit length of the match's length
_AGREED = (0.5, 0.8, 1.0)  # factor of it where less than two thirds of the places agree, where more do, where all do


class _Match(NamedTuple):
    """A match of the last tokens: its length, the array, and the positions of the tokens that follow."""

    length: int
    follow: Sequence[tuple[SuffixArray, int]]


_NONE = _Match(0, ())


class CorpusLookup:
    """The lookup of one text. A token takes some microseconds, and more for each array in which the match ends."""

    def __init__(self, arrays: Sequence[SuffixArray], vocabulary_size: int) -> None:
        """`arrays`: the files, as tokens of a vocabulary of `vocabulary_size` ids."""
        self._arrays, self._size = arrays, vocabulary_size
        self._count, self._recent = 0, list[int]()
        self._match = _NONE
        self._tail: tuple[list[int], _Match] = [], _NONE
        self._rates = HitRates([(factor * chance,) for chance in _PRIOR for factor in _AGREED])

    def __len__(self) -> int:
        return self._count

    def extend(self, tokens: Sequence[int]) -> None:
        """Take in `tokens` of the text."""
        self._count += len(tokens)
        if not self._arrays:
            return
        earlier, tried = tokens[: max(0, len(tokens) - _TRIED)], tokens[max(0, len(tokens) - _TRIED) :]
        if earlier:
            self._recent = [*self._recent, *earlier[-LONGEST:]][-LONGEST:]
            self._match = self._searched(self._recent)
        for token in tried:
            if (found := self._votes(self._match)) is not None:
                self._rates.learn(_kind(self._match.length, found), 0 if found[0][0] == token else None)
            self._recent = [*self._recent, token][-LONGEST:]
            self._match = self._moved(self._match, token, self._recent)
        self._tail = [], self._match

    def predict(self, tail: Sequence[int] = (), forced: int = 0, most: int = 1) -> list[tuple[int, float]]:
        """The `most` likeliest tokens behind the text and `tail`, each with its chance; empty: no match.

        `forced`: of the last tokens, those that could not be others: that they match says nothing.
        """
        found = self._votes(match := self._behind(tail))
        if found is None:
            return []
        (chance,) = self._rates.chances(_kind(max(1, match.length - forced), found))
        (token, _), *others = found
        rest = (1.0 - chance) * chance / sum(count for _, count in found)  # the others are right less often than alike
        return [(token, chance), *((other, rest * count) for other, count in others)][:most]

    def _behind(self, tail: Sequence[int]) -> _Match:
        if not self._arrays:
            return _NONE
        known, match = self._tail
        if known != list(tail[: len(known)]):
            known, match = [], self._match
        for at in range(len(known), len(tail)):
            match = self._moved(match, tail[at], [*self._recent, *tail[: at + 1]][-LONGEST:])
        self._tail = list(tail), match
        return match

    def _moved(self, match: _Match, token: int, recent: Sequence[int]) -> _Match:
        """The match behind `token`, the last of `recent`. A match that continues stays the longest one."""
        follow = [(array, place - 1) for array, place in match.follow if array.token(place) == token]
        return _Match(min(match.length + 1, LONGEST), follow) if follow else self._searched(recent)

    def _searched(self, recent: Sequence[int]) -> _Match:
        longest, follow, backwards = _LEAST, list[tuple[SuffixArray, int]](), recent[::-1]
        for array in self._arrays:
            length, places = array.matches(backwards, longest)
            if length > longest:
                longest, follow = length, []
            if length == longest:
                follow += [(array, place) for place in places if place >= 0]
        return _Match(longest, follow) if follow else _NONE

    def _votes(self, match: _Match) -> list[tuple[int, int]] | None:
        """The tokens that follow, with their counts, the most frequent first; None: no token follows."""
        votes = Counter(token for array, place in match.follow if (token := array.token(place)) < self._size)
        return votes.most_common() or None


def _kind(length: int, votes: Sequence[tuple[int, int]]) -> int:
    """The kind of prediction in `HitRates`: by length of match, and by how far the occurrences agree."""
    alike = 2 if len(votes) == 1 else int(3 * votes[0][1] > 2 * sum(count for _, count in votes))
    return len(_AGREED) * kind_of(length, len(_PRIOR)) + alike
