"""How evenly the tokens of a text came: milliseconds from the token before, in three figures and in one line."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from drafter_client.metrics.quantile import quantile

_LEVELS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Pace:
    """Inter-token latencies (ITL), milliseconds."""

    median: float
    p90: float
    longest: float

    @classmethod
    def of(cls, token_ms: Sequence[float]) -> "Pace | None":
        """`token_ms`: of each token since the one before; the first's is no ITL. None where there is no other."""
        latencies = token_ms[1:]
        if not latencies:
            return None
        return cls(quantile(latencies, 0.5), quantile(latencies, 0.9), max(latencies))


def means(values: Sequence[float], most: int) -> list[float]:
    """`values` in order, in at most `most` bins of nearly equal size: the mean of each."""
    bins = min(len(values), most)
    edges = [len(values) * at // bins for at in range(bins + 1)] if bins else []
    return [fmean(values[low:high]) for low, high in pairwise(edges)]


def sparkline(values: Sequence[float]) -> str:
    """A sign for each of `values`, none of them negative, as high as its share of the greatest."""
    greatest = max(values, default=0.0) or 1.0
    return "".join(_LEVELS[min(len(_LEVELS) - 1, int(len(_LEVELS) * value / greatest))] for value in values)
