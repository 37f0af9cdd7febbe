"""Quantiles of any number of values in memory that does not grow with them."""

import math

from specpair.quantile import rank

_BUCKETS = 512  # of equal width between a power of two and the next
WIDTH = 1 / _BUCKETS  # of the widest bucket, in relation to its values: a quantile is off by half of it at most


class Histogram:
    """Counts values of 0 and above by buckets, each a fixed part of an octave. It needs no logarithms, whose last bits
    differ between machines.

    A quantile is `specpair.quantile.quantile` of the values, each rounded to the middle of its bucket: 0.1 % off at
    most. Mean, smallest and greatest value are exact.
    """

    def __init__(self) -> None:
        self.count, self.total = 0, 0.0
        self._least, self._most = math.inf, -math.inf
        self._zeros = 0
        self._buckets: dict[int, int] = {}

    def add(self, value: float) -> None:
        """Count a value, at least 0."""
        self.count += 1
        self.total += value
        if value < self._least:
            self._least = value
        if value > self._most:
            self._most = value
        if value <= 0.0:
            self._zeros += 1
            return
        mantissa, octave = math.frexp(value)
        bucket = _BUCKETS * octave + int((2.0 * mantissa - 1.0) * _BUCKETS)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    @property
    def mean(self) -> float:
        """Not a number, if there are no values."""
        return self.total / self.count if self.count else math.nan

    def quantiles(self, *shares: float) -> list[float]:
        """The value below which each share, 0 to 1, of the values lies; not a number, if there are no values."""
        if not self.count:
            return [math.nan] * len(shares)
        ordered = [(0.0, self._zeros), *((_middle(key), self._buckets[key]) for key in sorted(self._buckets))]
        found = []
        for share in shares:
            low, part = rank(self.count, share)
            begin, end = _at(ordered, low), _at(ordered, min(low + 1, self.count - 1))
            found.append(min(max(begin + part * (end - begin), self._least), self._most))
        return found


def _middle(bucket: int) -> float:
    octave, number = divmod(bucket, _BUCKETS)
    return math.ldexp(0.5 + (number + 0.5) / (2 * _BUCKETS), octave)


def _at(ordered: list[tuple[float, int]], rank: int) -> float:
    """The value of a rank, from 0."""
    below = 0
    for value, count in ordered:
        below += count
        if rank < below:
            return value
    raise IndexError(rank)
