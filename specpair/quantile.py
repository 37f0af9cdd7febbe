"""The definition of quantile (median, quartile, percentile) that all statistics use."""

from collections.abc import Sequence


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
