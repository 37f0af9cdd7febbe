"""Makes one segment of several, and leaves out files that are gone, without sorting anew what is sorted.

The places are merged range by range. A range holds those between two of the patterns that stand at regular distances in
the segments, so it has few places of each, and memory does not grow with them. Within a range the places are sorted by
what a search compares, in one pass for each time that the segments can be halved: they come as sorted runs, which
Timsort finds. Places with the same pattern need no order.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from specpair.corpus.suffix_array import LONGEST, WIDTH

_AT_ONCE = 1 << 19
_PATTERN = WIDTH * LONGEST  # bytes


class Merged:
    """A segment that is merged: its data and places, and where its files come to stand."""

    def __init__(
        self, data: memoryview, places: NDArray[np.int32], tokens: Sequence[int], kept: Sequence[bool], at: int
    ) -> None:
        """`data`: of a `SuffixArray`, from its first token on.
        `tokens`: of each file, in the order of the data.
        `kept`: whether each is kept.
        `at`: tokens of the segments before it, where the new ones come behind; 0: it is the first one.
        """
        self.places, self._data = places, data
        lengths = np.array([1, *(count + 1 for count in tokens)], np.int64)  # `NO_TOKEN`; each file and one behind it
        self._kept = np.array([at == 0, *kept])
        self._begins = np.cumsum(lengths) - lengths
        self.count = int(lengths[self._kept].sum())
        self._moved = at + np.cumsum(lengths * self._kept) - lengths * self._kept - self._begins
        self._ends = self._begins + lengths
        self._patterns = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), _PATTERN)[::WIDTH]

    def data(self) -> Iterator[memoryview]:
        """Of the kept files, in parts."""
        for begin, end in zip(self._begins[self._kept].tolist(), self._ends[self._kept].tolist(), strict=True):
            yield self._data[WIDTH * begin : WIDTH * end]

    def pattern(self, place: int) -> bytes:
        """What a place is sorted by."""
        at = WIDTH * int(place)
        return bytes(self._data[at : at + _PATTERN])

    def cuts(self, marks: Sequence[bytes]) -> list[int]:
        """Where the places of each of these patterns begin and end, and those of all of them."""
        cuts = [cut(self.places, mark, key=self.pattern) for mark in marks for cut in (bisect_left, bisect_right)]
        return [0, *cuts, len(self.places)]

    def range(self, begin: int, end: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Those of the sorted places from `begin` to `end` that are kept, and where they come to stand."""
        places = self.places[begin:end]
        span = np.searchsorted(self._begins, places, "right") - 1
        kept = self._kept[span]
        places = places[kept]
        return places, (places + self._moved[span[kept]]).astype(np.int32)

    def patterns(self, places: NDArray[np.int32]) -> NDArray[np.bytes_]:
        """What these places are sorted by."""
        return self._patterns[places].view(f"S{_PATTERN}")[:, 0]


def merged(segments: Sequence[Merged], at_once: int = _AT_ONCE) -> Iterator[NDArray[np.int32]]:
    """The places of all segments, sorted, in several arrays. `at_once`: places that are sorted at once, at most."""
    step = max(1, at_once // len(segments))
    marks = sorted({each.pattern(place) for each in segments for place in each.places[step::step]})
    cuts = [[*pairwise(each.cuts(marks))] for each in segments]
    for number, ranges in enumerate(zip(*cuts, strict=True)):
        found = [each.range(*where) for each, where in zip(segments, ranges, strict=True)]
        new = np.concatenate([places for _, places in found])
        if len(segments) > 1 and number % 2 == 0:  # else they are in order: every second range has one pattern
            patterns = [each.patterns(places) for each, (places, _) in zip(segments, found, strict=True)]
            new = new[np.argsort(np.concatenate(patterns), kind="stable")]
        yield new
