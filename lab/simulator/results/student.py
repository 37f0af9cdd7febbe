"""Means with their intervals, by Student's t. No SciPy: the distribution has a closed form for whole degrees."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, variance

CONFIDENCE = 0.95
_DIGITS = 9  # of a t, which has the same bits everywhere then: those of sines have not


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean of replications. `half`: half the width of its interval; None: there are too few for one.

    `least`, `most`: what lies beyond them cannot be, as a share above 1, and the interval ends there.
    """

    mean: float
    half: float | None = None
    least: float = -math.inf
    most: float = math.inf

    @property
    def low(self) -> float | None:
        return None if self.half is None else max(self.mean - self.half, self.least)

    @property
    def high(self) -> float | None:
        return None if self.half is None else min(self.mean + self.half, self.most)

    @property
    def reach(self) -> tuple[float, float]:
        """From the mean down and up to the ends of its interval; 0 where it has none."""
        return 0.0 if self.low is None else self.mean - self.low, 0.0 if self.high is None else self.high - self.mean

    @property
    def cut(self) -> bool:
        """Whether the interval ends at what can be, and so is not even on both sides."""
        return self.half is not None and not self.least <= self.mean - self.half <= self.mean + self.half <= self.most

    @property
    def clear(self) -> bool:
        """Whether it differs from 0 by more than chance: its interval leaves 0 out."""
        return self.half is not None and abs(self.mean) > self.half


def estimate(values: Sequence[float], least: float = -math.inf, most: float = math.inf) -> Estimate:
    """The mean of what independent replications gave. Those without a value, not a number, are left out.

    `least`, `most`: between which all values lie.
    """
    found = [value for value in values if not math.isnan(value)]
    if len(found) < 2:
        return Estimate(found[0] if found else math.nan, None, least, most)
    half = t_quantile(len(found) - 1) * math.sqrt(variance(found) / len(found))
    return Estimate(fmean(found), half, least, most)


def paired_difference(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """How much more the second are, where both have a value in each replication under the same load and chance (common
    random numbers): what the two have in common drops out."""
    return estimate([second - first for first, second in zip(before, after, strict=True)])


def difference(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """How much more the second are, where their replications have nothing in common: by Welch's approximation, with the
    degrees of freedom rounded down."""
    sides = [[value for value in side if not math.isnan(value)] for side in (before, after)]
    if not all(sides):
        return Estimate(math.nan)
    mean = fmean(sides[1]) - fmean(sides[0])
    if min(map(len, sides)) < 2:
        return Estimate(mean)
    errors = [variance(side) / len(side) for side in sides]
    total = sum(errors)
    if not total:
        return Estimate(mean, 0.0)
    shares = [error / total for error in errors]  # their squares do not underflow as those of tiny errors do
    degrees = 1 / sum(share * share / (len(side) - 1) for share, side in zip(shares, sides, strict=True))
    return Estimate(mean, t_quantile(max(math.floor(degrees), 1)) * math.sqrt(total))


@cache
def t_quantile(degrees: int) -> float:
    """The t that a variable of Student's distribution stays within, on both sides, with the chance `CONFIDENCE`."""
    low, high = 0.0, 1.0
    while _within(high, degrees) < CONFIDENCE:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _within(middle, degrees) < CONFIDENCE else (low, middle)
    return round(high, _DIGITS)


def _within(t: float, degrees: int) -> float:
    """The chance that a variable of Student's distribution lies within -t and t (Abramowitz and Stegun, Handbook of
    Mathematical Functions, 1964, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine if odd else 1.0), 0.0
    for step in range(1 + odd, degrees, 2):
        total += term
        term *= cosine**2 * step / (step + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
