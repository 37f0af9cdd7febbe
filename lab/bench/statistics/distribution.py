"""A set of values in a few numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

QUANTILES = (25, 50, 75, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean, standard deviation of the sample (None for one value), extremes and percentiles of `count` values.

    A percentile between two values is interpolated linearly, as NumPy, pandas and both other tools do.
    """

    count: int
    mean: float
    stddev: float | None
    min: float
    max: float
    p25: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float


def distribution(values: Sequence[float]) -> Distribution | None:
    """None: there are no values."""
    if not values:
        return None
    # Sorted, so that the sum is the same in whatever order the values come.
    array = np.sort(np.asarray(values, dtype=np.float64))
    return Distribution(
        len(array),
        float(array.mean()),
        float(array.std(ddof=1)) if len(array) > 1 else None,
        float(array[0]),
        float(array[-1]),
        *(float(found) for found in np.percentile(array, QUANTILES)),
    )
