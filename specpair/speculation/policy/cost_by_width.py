"""The cost of a pass by its width, from noisy measurements: positive, finite, and never falling."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isfinite
from typing import overload

LEAST, MOST = 1e-6, 1e4  # seconds that a measured pass counts for, at least and at most


def rising(values: Iterable[float]) -> list[float]:
    """The nearest values that never fall, by least squares: isotonic regression by pooling adjacent violators."""
    pools: list[tuple[float, int]] = []  # a mean, and how many values have it
    for value in values:
        mean, count = value, 1
        while pools and pools[-1][0] > mean:
            before, more = pools.pop()
            mean, count = (mean * count + before * more) / (count + more), count + more
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]


class CostByWidth(Sequence[float]):
    """Seconds of a pass by its width, the number of its tokens. As a sequence: of 1, 2, … tokens to the widest
    measured.

    A wider pass does more. Where it was measured to be faster than a narrower one, the machine did something else
    during the narrower one, or a clock was too coarse: such widths get their mean (`rising`). Widths between those
    measured lie on lines, narrower ones cost as much as the narrowest. Beyond the widest the cost rises at the steepest
    measured rate; of a single width, in proportion.
    """

    def __init__(self, points: Iterable[tuple[int, float]]) -> None:
        """`points`: measured widths and their seconds. Of several with one width the least counts; those whose seconds
        are not positive and finite are left out, as no pass takes such a time."""
        least: dict[int, float] = {}
        for width, seconds in points:
            if width > 0 and 0.0 < seconds and isfinite(seconds):
                least[width] = min(max(seconds, LEAST), MOST, least.get(width, MOST))
        self._widths = sorted(least)
        self._seconds = rising([least[width] for width in self._widths])
        known = list(zip(self._widths, self._seconds, strict=True))
        rates = [(high - low) / (right - left) for (left, low), (right, high) in pairwise(known)]
        self._steepest = max(rates or [seconds / width for width, seconds in known], default=0.0)

    @classmethod
    def of(cls, times: Sequence[float]) -> "CostByWidth":
        """From the seconds of passes over 1, 2, … tokens."""
        return times if isinstance(times, cls) else cls(enumerate(times, 1))

    def at(self, tokens: float) -> float:
        """Seconds of a pass over so many tokens; `LEAST` where nothing was measured."""
        widths, seconds = self._widths, self._seconds
        if not widths:
            return LEAST
        right = bisect_left(widths, tokens)
        if right == len(widths):
            return seconds[-1] + (tokens - widths[-1]) * self._steepest
        if not right:
            return seconds[0]
        low, high, left = seconds[right - 1], seconds[right], widths[right - 1]
        return min(high, low + (high - low) * (tokens - left) / (widths[right] - left))

    def __len__(self) -> int:
        return self._widths[-1] if self._widths else 0

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> list[float]: ...
    def __getitem__(self, index: int | slice) -> float | list[float]:
        chosen = range(1, len(self) + 1)[index]
        return self.at(chosen) if isinstance(chosen, int) else [self.at(width) for width in chosen]
