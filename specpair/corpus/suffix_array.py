"""A suffix array of token ids: where the last tokens of a text occur in other texts, the longest match first.

The texts are kept backwards, so that what precedes a place follows it there: the sorted places with the longest match
lie side by side, and one binary search finds them (Manber and Myers 1990). Places are sorted by the `LONGEST` tokens
before them, which is all that a search compares. Tokens are kept as big-endian numbers: bytes compare as they do.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

LONGEST = 32  # most tokens of a match
NO_TOKEN = 0x7FFFFFFF  # between texts, and at both ends
WIDTH = 4  # bytes of a token, and of a place
_SIDE = 16  # equally long matches that are taken from each side of where the search ends


class Data(Protocol):
    """Bytes, or a memory map of them."""

    def __getitem__(self, part: slice, /) -> bytes: ...


def joined(texts: Sequence[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    """The texts concatenated and reversed, with `NO_TOKEN` between them and at both ends."""
    end = np.array([NO_TOKEN], np.uint32)
    parts = [part for text in reversed(texts) for part in (end, text[::-1])]
    return np.concatenate([*parts, end]) if parts else end


def sorted_positions(backwards: NDArray[np.uint32]) -> NDArray[np.int32]:
    """The indices of `backwards` in the order of the tokens from there on, `LONGEST` of them or more.

    By doubling (Karp, Miller and Rosenberg 1972): the order by k tokens gives that by 2 k, for the places that are not
    told apart by k. It takes some 30 bytes a token at the same time, and a third of a microsecond or more.
    """
    count = len(backwards)
    ranks = np.searchsorted(np.unique(backwards), backwards).astype(np.int32)  # so that several tokens are one number
    ranks += 1
    bits, known, keys = int(ranks.max()).bit_length(), 1, ranks.astype(np.int64)
    while known < LONGEST and (known + 1) * bits < 64:
        keys <<= bits
        keys[:-known] |= ranks[known:]
        known += 1
    places = np.argsort(keys).astype(np.int32)
    begins = _begins(keys[places])
    del keys
    ranks[places] = _first_alike(begins)
    while known < LONGEST:
        alike = np.flatnonzero(~(begins & np.append(begins[1:], True))).astype(np.int32)  # in groups of several places
        if not len(alike):
            break
        group = places[alike]
        behind = group + known
        keys = ranks[group].astype(np.int64) << 32
        inside = behind < count
        keys[inside] |= ranks[behind[inside]] + 1
        order = np.argsort(keys)
        places[alike] = group = group[order]
        begins[alike] = new = _begins(keys[order])
        ranks[group] = alike[_first_alike(new)]
        known *= 2
    return places


def _first_alike(begins: NDArray[np.bool_]) -> NDArray[np.int32]:
    """For each of the sorted keys, the index of the first of its value."""
    firsts = np.flatnonzero(begins).astype(np.int32)
    return firsts[np.cumsum(begins, dtype=np.int32) - 1]


def _begins(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each of the sorted keys, whether it is the first of its value."""
    return np.append(True, keys[1:] != keys[:-1])


class SuffixArray:
    """Texts that can be searched. With damaged data, a search finds wrong tokens and does nothing worse."""

    def __init__(self, data: Data, at: int, places: Sequence[int]) -> None:
        """`data`: from byte `at` on, `joined` texts as big-endian numbers, and `LONGEST` tokens of whatever value.
        `places`: their `sorted_positions`.
        """
        self._data, self._at, self._places = data, at, places

    @classmethod
    def of(cls, texts: Sequence[Sequence[int] | NDArray[np.uint32]]) -> "SuffixArray":
        """The suffix array of some texts, in memory."""
        backwards = joined([np.asarray(text, np.uint32) for text in texts])
        return cls(as_bytes(backwards), 0, sorted_positions(backwards).data)

    def token(self, place: int) -> int:
        """The token at a position; `NO_TOKEN` at the end of a text."""
        at = self._at + WIDTH * place
        return int.from_bytes(self._data[at : at + WIDTH])

    def matches(self, recent: Sequence[int], least: int = 1) -> tuple[int, list[int]]:
        """The length of the longest match of the last tokens of a text, and positions of the tokens that follow.

        These are all places, or some of them where there are very many. Behind a place comes the one before it.

        `recent`: the last tokens, `LONGEST` at most, the last of them first.
        `least`: tokens of the shortest match that is wanted.
        """
        wanted = array("I", recent)
        if sys.byteorder == "little":
            wanted.byteswap()
        pattern = wanted.tobytes()
        data, start, places, size = self._data, self._at, self._places, len(pattern)
        end = start + size
        low = bisect_left(places, pattern, key=lambda place: data[start + WIDTH * place : end + WIDTH * place])
        around = [start + WIDTH * place for place in places[max(0, low - 1) : low + 1]]
        longest = max((_common(data[at : at + size], pattern) for at in around), default=0)
        if longest < least:
            return 0, []
        found, matched = list[int](), pattern[: WIDTH * longest]
        for side in (places[low : low + _SIDE], places[max(0, low - _SIDE) : low][::-1]):
            for place in side:
                at = start + WIDTH * place
                if data[at : at + len(matched)] != matched:
                    break  # the further from where the search ended, the shorter the match
                found.append(place - 1)
        return longest, found


def as_bytes(backwards: NDArray[np.uint32]) -> bytes:
    """The data of a `SuffixArray`."""
    return backwards.astype(">u4").tobytes() + bytes(WIDTH * LONGEST)


def _common(one: bytes, other: bytes) -> int:
    """The length of the common prefix."""
    if len(one) != len(other):
        return 0
    differing = int.from_bytes(one) ^ int.from_bytes(other)
    return (8 * len(one) - differing.bit_length()) // (8 * WIDTH)
