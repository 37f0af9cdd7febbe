"""The definition of quantile (median, quartile, percentile) that all statistics use; shares in whole percent."""

from collections.abc import Iterable, Sequence
from math import floor


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a `share` (0 to 1) of `values` lies.

    `values`: at least one, in any order.

    Interpolates linearly between two values, like `statistics.quantiles` with method "inclusive" (type 7 of Hyndman and
    Fan, "Sample quantiles in statistical packages", 1996).
    """
    ordered = sorted(values)
    low, part = rank(len(ordered), share)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + part * (ordered[high] - ordered[low])


def rank(count: int, share: float) -> tuple[int, float]:
    """Which of `count` values in order, from 0, a quantile is, and how far on the way to the next one, 0 to 1."""
    at = share * (count - 1)
    return int(at), at - int(at)


def percentages(parts: Iterable[float]) -> list[int]:
    """The share of each part in their sum, in whole percent: those with the largest fractions are rounded up, so that
    they add up to 100. All are 0 if the sum is 0."""
    values = list(parts)
    total = sum(values)
    if total <= 0:
        return [0] * len(values)
    exact = [100 * value / total for value in values]
    whole = [floor(value) for value in exact]
    most_missing = sorted(range(len(values)), key=lambda at: (whole[at] - exact[at], at))
    for at in most_missing[: 100 - sum(whole)]:
        whole[at] += 1
    return whole
