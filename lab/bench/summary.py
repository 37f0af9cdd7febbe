"""Summarises the requests of one side in one case."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import fsum

import numpy as np

from lab.bench import measures
from lab.bench.case import Case, Slo
from lab.bench.records import MeasuredRequest, Side

QUANTILES = (25, 50, 75, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and percentiles of `count` values.

    A percentile between two values is interpolated linearly, as NumPy, pandas and both other tools do.
    """

    count: int
    mean: float
    p25: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float


def distribution(values: Sequence[float]) -> Distribution | None:
    """Mean and percentiles; None: there are no values."""
    if not values:
        return None
    # Sorted, so that the sum is the same in whatever order the values come.
    array = np.sort(np.asarray(values, dtype=np.float64))
    return Distribution(
        len(array),
        float(array.mean()),
        *(float(found) for found in np.percentile(array, QUANTILES)),
    )


def by_stretch(requests: Sequence[MeasuredRequest]) -> list[list[MeasuredRequest]]:
    """Requests in groups of one stretch each, by the stretches' numbers."""
    ordered = sorted(requests, key=lambda each: (each.stretch, each.started, each.index))
    return [list(group) for _, group in groupby(ordered, key=lambda each: each.stretch)]


def seconds_under_load(stretch: Sequence[MeasuredRequest]) -> float:
    """Seconds from the sending of the first request to the end of the last. `stretch`: at least one request."""
    return max(each.started + each.ended for each in stretch) - min(each.started for each in stretch)


_HOUR, _MILLION = 3600.0, 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures of a side in a case. The keys of `distributions` and `values` are those of `measures.ALL`; a figure that
    was not measured is in neither.

    `requests`: all, failed ones among them. `failures`: how many, by kind.
    `tokens_out`: of the requests that tell.
    `loaded_s`: seconds under load.
    """

    case: str
    side: str
    requests: int
    failures: dict[str, int]
    tokens_out: int
    loaded_s: float
    distributions: dict[str, Distribution]
    values: dict[str, float]


def summarise(case: Case, side: Side, requests: Sequence[MeasuredRequest]) -> Summary:
    """Summarise the requests of a side in a case. Their order does not matter."""
    whole = [each for each in requests if each.failure is None]
    tokens_out = sum(each.tokens_out or 0 for each in whole)
    loaded = fsum(map(seconds_under_load, by_stretch(requests)))
    values: dict[measures.Measure, float] = {}
    if tokens_out and loaded > 0:
        values[measures.LOAD_SPEED] = tokens_out / loaded
        if side.price_per_hour is not None:
            values[measures.COST] = side.price_per_hour / _HOUR * loaded / tokens_out * _MILLION
    if requests and case.slo != Slo():
        good = sum(_is_good(each, case.slo) for each in requests)
        values[measures.GOOD_SHARE] = good / len(requests)
        if loaded > 0:
            values[measures.GOODPUT] = good / loaded
    told = [each.speculation for each in whole if each.speculation is not None]
    drafted, rounds = sum(each.drafted for each in told), sum(each.rounds or 0 for each in told)
    if drafted:
        values[measures.ACCEPTANCE_RATE] = sum(each.accepted for each in told) / drafted
    if rounds:
        values[measures.ACCEPTANCE_LENGTH] = 1 + sum(each.accepted for each in told if each.rounds is not None) / rounds
    if told and tokens_out:
        values[measures.DRAFTED] = drafted / tokens_out
    return Summary(
        case=case.name,
        side=side.name,
        requests=len(requests),
        failures=dict(sorted(Counter(each.failure.kind for each in requests if each.failure is not None).items())),
        tokens_out=tokens_out,
        loaded_s=loaded,
        distributions={
            measure.key: found
            for measure in measures.DISTRIBUTED
            if (found := distribution(measures.values_of(measure, requests))) is not None
        },
        values={measure.key: values[measure] for measure in measures.SINGLE if measure in values},
    )


def _is_good(request: MeasuredRequest, slo: Slo) -> bool:
    """Whether a request kept every bound. A request that failed, or lacks a bounded value, did not."""
    return request.failure is None and all(
        bound is None or ((value := getattr(request, name)) is not None and value <= bound) for name, bound in slo
    )
