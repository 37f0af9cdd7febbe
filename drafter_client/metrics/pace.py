"""Inter-token latencies of a text: median, 90th percentile and longest; and a sparkline of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from specpair.quantile import quantile

_LEVELS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Pace:
    """Statistics of the inter-token latencies (ITL) of a text, in seconds."""

    median: float
    p90: float
    longest: float

    @classmethod
    def of(cls, token_times: Sequence[float]) -> "Pace | None":
        """The statistics of a text; None if it has fewer than two tokens.

        `token_times`: for each token the seconds since the one before. The first token's value is no ITL and ignored.
        """
        latencies = token_times[1:]
        if not latencies:
            return None
        return cls(quantile(latencies, 0.5), quantile(latencies, 0.9), max(latencies))


def means(values: Sequence[float], most: int) -> list[float]:
    """Split `values`, in order, into at most `most` bins of nearly equal size; return the mean of each bin."""
    bins = min(len(values), most)
    edges = [len(values) * at // bins for at in range(bins + 1)] if bins else []
    return [fmean(values[low:high]) for low, high in pairwise(edges)]


def sparkline(values: Sequence[float]) -> str:
    """One block character for each of `values`, its height proportional to the value. No value may be negative."""
    greatest = max(values, default=0.0) or 1.0
    return "".join(_LEVELS[min(len(_LEVELS) - 1, int(len(_LEVELS) * value / greatest))] for value in values)
