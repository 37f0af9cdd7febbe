"""What requests had: times, tokens, and whether they kept their bounds."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from lab.simulator.configuration.keys import MS
from lab.simulator.configuration.operation import SloKeys
from lab.simulator.fleet.record import Record, Status
from lab.simulator.results.measures import PERCENTILES
from specpair.numbers import quantile


class SloDecision(NamedTuple):
    """When it was clear whether a request kept its bounds, in seconds, and whether it did."""

    at: float
    kept: bool


def decided(record: Record, slo: SloKeys) -> SloDecision | None:
    """What became of a request's bounds. None: there are none, or it was under way, and could have kept them yet.

    One that breaks a bound is decided at the moment that the bound names, however long it takes then. So what is
    decided in some time is a fair sample of all requests, also at the end, where many are under way.
    """
    if slo.ttft_ms is slo.tpot_ms is slo.latency_ms is None:
        return None
    whole = record.status is Status.WHOLE
    first, end = record.first if record.times else math.inf, record.end if whole else math.inf
    promised: list[tuple[float, float]] = []  # by when something had to be there, and when it was
    if slo.ttft_ms is not None:
        promised.append((record.sent + slo.ttft_ms * MS, first))
    if slo.latency_ms is not None:
        promised.append((record.sent + slo.latency_ms * MS, end))
    if slo.tpot_ms is not None and record.times:
        behind = (len(record.times) if whole else record.output_tokens) - 1
        promised.append((first + slo.tpot_ms * MS * behind, end))
    broken = [by for by, at in promised if by < at and by <= record.over]
    if broken:
        return SloDecision(min(broken), False)
    return None if record.status is Status.UNFINISHED else SloDecision(record.over, whole)


def distinct(times: Iterable[float]) -> list[float]:
    """The times, each once: when chunks of tokens came."""
    return [*dict.fromkeys(times)]


def measures_of(records: Sequence[Record], decisions: Sequence[SloDecision]) -> dict[str, float]:
    """Those of MEASURES that requests of a group have. `decisions`: of the requests that were decided."""
    chunks = [distinct(each.times) for each in records if each.times]
    rounds = sum(len(each) - 1 for each in chunks)
    behind = sum(len(each.times) - each.times.count(each.first) for each in records if each.times)
    whole = [each for each in records if each.status is Status.WHOLE]
    seconds = {
        "ttft": [each.ttft for each in records if each.times],
        "tpot": [each.tpot for each in whole if len(each.times) > 1],
        "latency": [each.end - each.sent for each in whole],
        "round": [after - before for each in chunks for before, after in pairwise(each)],
    }
    statuses = Counter(each.status for each in records)
    found = {
        "slo_attainment": share(sum(each.kept for each in decisions), len(decisions)),
        "acceptance": share(sum(each.accepted for each in records), sum(each.drafted for each in records)),
        "tokens_per_round": share(behind, rounds),
        **{status.value: float(statuses[status]) for status in Status},
    }
    for name, values in seconds.items():
        values.sort()
        found |= {f"{name}_{each}_ms": percentile(values, part) / MS for each, part in PERCENTILES.items()}
    return found


def percentile(values: Sequence[float], part: float) -> float:
    """Not a number, if there are no values."""
    return quantile(values, part) if values else math.nan


def share(part: float, whole: float) -> float:
    """Not a number, if there is nothing."""
    return part / whole if whole else math.nan
