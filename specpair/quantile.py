"""The definition of quantile (median, quartile, percentile) that all statistics use."""

from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a `share` (0 to 1) of `values` lies.

    `values`: at least one, in any order.

    Interpolates linearly between two values, like `statistics.quantiles` with method "inclusive" (type 7 of Hyndman and
    Fan, "Sample quantiles in statistical packages", 1996).
    """
    ordered = sorted(values)
    rank = share * (len(ordered) - 1)
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (rank - low) * (ordered[high] - ordered[low])
