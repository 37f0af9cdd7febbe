"""A mean of correlated values with its interval, by batch means."""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple


class Interval(NamedTuple):
    """A mean, and how far to both sides its interval reaches."""

    mean: float
    half: float

    def holds(self, value: float) -> bool:
        """Whether the interval holds the value."""
        return abs(value - self.mean) <= self.half

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.half:.2g}"


def batch_means(values: Sequence[float], batches: int = 20, warm_up: float = 0.1, level: float = 0.95) -> Interval:
    """The interval of the mean of a long run's values, which are correlated with those near them.

    `batches`: that the values are cut into; their means are taken as independent.
    `warm_up`: share of the values, from the beginning, that is left out.
    `level`: of the interval.
    """
    kept = values[int(warm_up * len(values)) :]
    size = len(kept) // batches
    return of_independent([fmean(kept[at * size : (at + 1) * size]) for at in range(batches)], level)


def of_independent(means: Sequence[float], level: float = 0.95) -> Interval:
    """The interval of the mean of independent values, such as those of replications; at least two."""
    half = _student(len(means) - 1, level) * stdev(means) / math.sqrt(len(means))
    return Interval(fmean(means), half)


def _student(freedom: int, level: float) -> float:
    """The two-sided quantile of Student's t distribution, by its expansion around the normal one: right to 1 % from 4
    degrees of freedom on (Abramowitz and Stegun, 26.7.5)."""
    z = NormalDist().inv_cdf((1.0 + level) / 2.0)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
