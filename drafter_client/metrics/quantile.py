"""What share of some values lies below: the one definition of median, quartile and percentile for all figures."""

from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """Of at least one value, in any order: the one that `share` (0 to 1) of the others lie below.

    Between two of them along a line, as `statistics.quantiles` with method "inclusive" (type 7 of Hyndman and Fan,
    "Sample quantiles in statistical packages", 1996).
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
