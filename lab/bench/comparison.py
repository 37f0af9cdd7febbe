"""Compares sides in a case: which is better, by how much, and whether the difference is noise.

Sides got the same requests, so they are compared by pairs. What is drawn by the bootstrap is a request of the case with
all its repetitions: repeating a prompt tells more of that prompt and nothing of others.

Intervals are those of the studentised bootstrap ("bootstrap-t": Efron and Tibshirani, An Introduction to the Bootstrap,
1993, section 12.5) on the logarithm of the ratio, whose standard error comes from the delta method. Percentile and BCa
intervals are too narrow for as few pairs as a case has: of eight lognormal pairs, both cover the truth in 86 to 88 of
100 runs where 95 are promised, this one in 92 to 95.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.bench import measures
from lab.bench.measures import Measure
from lab.bench.records import MeasuredRequest
from lab.bench.summary import by_stretch, seconds_under_load
from lab.reports.charts import times

LEVEL = 0.95  # share of intervals that cover the truth
RESAMPLES = 2000
FEWEST = 5  # units; the quantiles of fewer say nothing
_SEED = 20240607
_CELLS = 2_000_000  # numbers of a resampled array at once, which bounds the memory
_ZERO = 1e-12
_FARTHEST = 100.0  # of a logarithm: an interval of few, uneven units may be wider than any number

Array = NDArray[np.float64]


# Numerator and denominator of a unit (a prompt, a stretch). The figure of several is the sum of the one over the sum of
# the other: for a mean of values, these are values and ones; for tokens/s, tokens and seconds.
Fraction = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio with its confidence interval at LEVEL. None: too few units for an interval."""

    ratio: float
    low: float | None
    high: float | None


def paired_ratio(one: Sequence[Fraction], other: Sequence[Fraction]) -> Interval | None:
    """The ratio of `one` to `other`. Element i of both is of the same unit, so that units are drawn with both sides.

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


def _parts(one: Sequence[Fraction], other: Sequence[Fraction]) -> Array | None:
    """Numerators and denominators of the ratio in rows, shape (4, units): those above the fraction bar first."""
    mine, theirs = (np.array(each, dtype=np.float64).reshape(-1, 2).T for each in (one, other))
    parts = np.array([mine[0], theirs[1], mine[1], theirs[0]])
    return parts if parts.size and bool((parts.sum(axis=1) > 0).all()) else None


def _log_ratio(parts: Array) -> tuple[Any, Any]:
    """Logarithm of the ratio, and its standard error. `parts`: (4, …, units)."""
    means = parts.mean(axis=-1, keepdims=True)
    relative = parts / means
    influence = relative[0] + relative[1] - relative[2] - relative[3]
    logs = np.log(means[..., 0])
    error = influence.std(axis=-1, ddof=1) / np.sqrt(parts.shape[-1]) if parts.shape[-1] > 1 else np.float64(0.0)
    return logs[0] + logs[1] - logs[2] - logs[3], error


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`side` against `baseline` by one measure in one case.

    `units`: requests of the case, or stretches, that both sides have.
    `ratio`: the side's figure / the baseline's. `low`, `high`: its interval of 95 %; None: too few units.
    `winner`: of the two, where the interval leaves 1 out.
    """

    case: str
    measure: str
    side: str
    baseline: str
    units: int
    ratio: float
    low: float | None
    high: float | None
    winner: str | None

    @property
    def verdict(self) -> str:
        """The comparison as a sentence."""
        if self.low is None or self.high is None:
            return f"too few to tell: {self.units} of both sides, {FEWEST} are needed (ratio {times(self.ratio)})"
        bounds = f"{times(self.low)} to {times(self.high)}"
        if self.winner is None:
            return f"no difference seen: {bounds}"
        if self.measure == measures.SPEED.key:
            return f"{self.side} is {times(self.ratio)} times {self.baseline} ({bounds})"
        name = measures.NAMES[self.measure]
        return f"{name} of {self.side} is {times(self.ratio)} times that of {self.baseline} ({bounds})"


@dataclass(frozen=True, slots=True)
class Sample:
    """The measured requests of a side in a case."""

    side: str
    requests: Sequence[MeasuredRequest]


def compare(case: str, one: Sample, baseline: Sample) -> list[Comparison]:
    """Compare two sides by every measure that both have."""
    found = []
    for measure, fractions in _FRACTIONS.items():
        mine, theirs = fractions(one), fractions(baseline)
        # By their text: numbers and tuples of them, in an order that depends on nothing else.
        common = sorted(mine.keys() & theirs.keys(), key=repr)
        compared = paired_ratio([mine[unit] for unit in common], [theirs[unit] for unit in common])
        if compared is None:
            continue
        winner = None
        if compared.low is not None and compared.high is not None and not compared.low <= 1 <= compared.high:
            higher = one.side if compared.ratio > 1 else baseline.side
            lower = baseline.side if compared.ratio > 1 else one.side
            winner = higher if measure.better == "higher" else lower
        found.append(
            Comparison(
                case=case,
                measure=measure.key,
                side=one.side,
                baseline=baseline.side,
                units=len(common),
                ratio=compared.ratio,
                low=compared.low,
                high=compared.high,
                winner=winner,
            )
        )
    return found


def _of_requests(
    fraction: Callable[[MeasuredRequest], Fraction | None],
) -> Callable[[Sample], Mapping[Hashable, Fraction]]:
    """Fractions summed by the request's index, over its repetitions."""

    def of(sample: Sample) -> Mapping[Hashable, Fraction]:
        sums: defaultdict[Hashable, list[Fraction]] = defaultdict(list)
        for request in sorted(sample.requests, key=lambda each: each.pairing):
            if request.failure is None and (found := fraction(request)) is not None:
                sums[request.index].append(found)
        return {index: _sum(several) for index, several in sums.items()}

    return of


def _mean_of(measure: Measure) -> Callable[[Sample], Mapping[Hashable, Fraction]]:
    value = measures.OF_A_REQUEST[measure]
    return _of_requests(lambda request: None if (found := value(request)) is None else (found, 1.0))


def _speed(request: MeasuredRequest) -> Fraction | None:
    """Tokens and seconds, so that the rate of several requests is that of all their tokens."""
    return None if request.tokens_per_second is None else (float(request.tokens_out or 0), request.chunks[-1])


def _load(sample: Sample) -> Mapping[Hashable, Fraction]:
    """Tokens and seconds under load, by stretch: the first of a repetition, the second, …"""
    found: dict[Hashable, Fraction] = {}
    counts: defaultdict[int, int] = defaultdict(int)
    for group in by_stretch(sample.requests):
        tokens = sum(each.tokens_out or 0 for each in group if each.failure is None)
        repetition = group[0].repetition
        found[repetition, counts[repetition]] = (float(tokens), seconds_under_load(group))
        counts[repetition] += 1
    return found


def _sum(several: Sequence[Fraction]) -> Fraction:
    return sum(over for over, _ in several), sum(under for _, under in several)


_FRACTIONS: dict[Measure, Callable[[Sample], Mapping[Hashable, Fraction]]] = {
    measures.SPEED: _of_requests(_speed),
    measures.TTFT: _mean_of(measures.TTFT),
    measures.ITL: _mean_of(measures.ITL),
    measures.LATENCY: _mean_of(measures.LATENCY),
    measures.LOAD_SPEED: _load,
}
