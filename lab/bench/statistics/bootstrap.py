"""Intervals of a ratio by the bootstrap.

The studentised bootstrap ("bootstrap-t": Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 12.5) on
the logarithm of the ratio, whose standard error comes from the delta method. Percentile and BCa intervals are
too narrow for as few pairs as a case has: of eight lognormal pairs, both cover the truth in 86 to 88 of 100 runs where
95 are promised, this one in 92 to 95.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95  # share of intervals that cover the truth
RESAMPLES = 2000
FEWEST = 5  # units; the quantiles of fewer say nothing
_SEED = 20240607
_CELLS = 2_000_000  # numbers of a resampled array at once, which bounds the memory
_ZERO = 1e-12
_FARTHEST = 100.0  # of a logarithm: an interval of few, uneven units may be wider than any number

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Quotients:
    """Units (prompts, stretches) with a numerator and a denominator each: `sum(over) / sum(under)` is the figure.

    For a mean of values, `over` are the values and `under` are ones; for tokens/s, tokens and seconds.
    """

    over: Sequence[float]
    under: Sequence[float]


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio with the bounds between which it lies in LEVEL of all cases. None: too few units for bounds."""

    ratio: float
    low: float | None
    high: float | None


def paired_ratio(one: Quotients, other: Quotients) -> Interval | None:
    """How many times `other`'s figure `one`'s is. Element i of both is of the same unit, so that units are drawn with
    both their sides.

    None: there is no ratio, as there are no units or a sum is 0. The result is the same in every call.
    """
    parts = _parts(one, other)
    if parts is None:
        return None
    ratio, error = _log_ratio(parts)
    units = parts.shape[1]
    if units < FEWEST:
        return Interval(float(np.exp(ratio)), None, None)
    if error < _ZERO:  # all units have the same ratio
        return Interval(*(float(np.exp(ratio)),) * 3)
    random = np.random.default_rng(_SEED)
    scores = []
    left = RESAMPLES
    while left:
        several = min(left, max(1, _CELLS // units))
        drawn = parts[:, random.integers(0, units, (several, units))]
        with np.errstate(divide="ignore", invalid="ignore"):  # a draw may hold zeros only; it is left out
            found, errors = _log_ratio(drawn)
            found, errors = found[errors >= _ZERO], errors[errors >= _ZERO]  # nor is one of equal units
            scores.append((found - ratio) / errors)
        left -= several
    drawn_scores = np.concatenate(scores)
    drawn_scores = drawn_scores[np.isfinite(drawn_scores)]
    low, high = np.quantile(drawn_scores, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    ends = np.clip([ratio - high * error, ratio - low * error], -_FARTHEST, _FARTHEST)
    return Interval(float(np.exp(ratio)), *map(float, np.exp(ends)))


def _parts(one: Quotients, other: Quotients) -> Array | None:
    """Numerators and denominators in rows, (4, units): those above the fraction bar of the ratio, then those below."""
    parts = np.array([one.over, other.under, one.under, other.over], dtype=np.float64)
    return parts if parts.size and bool((parts.sum(axis=1) > 0).all()) else None


def _log_ratio(parts: Array) -> tuple[Any, Any]:
    """Logarithm of the ratio, and its standard error. `parts`: (4, …, units)."""
    means = parts.mean(axis=-1, keepdims=True)
    relative = parts / means
    influence = relative[0] + relative[1] - relative[2] - relative[3]
    logs = np.log(means[..., 0])
    error = influence.std(axis=-1, ddof=1) / np.sqrt(parts.shape[-1]) if parts.shape[-1] > 1 else np.float64(0.0)
    return logs[0] + logs[1] - logs[2] - logs[3], error
