"""What users see, by one definition for both sides: throughput, time to the first token, time of a round."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from statistics import fmean

from lab.simulator.fleet.record import Record
from specpair.quantile import quantile

_TOGETHER = 2e-3  # seconds: tokens that come so soon one after the other are seen at once


@dataclass(frozen=True, slots=True)
class Measures:
    """Times in milliseconds."""

    throughput: float  # tokens a second
    ttft_p50: float
    ttft_p95: float
    round_p50: float  # between two arrivals of tokens
    round_p95: float
    texts: float  # whose first token came in the window
    rounds: float


def measured(records: Iterable[Record], start: float, end: float, slow: float) -> Measures:
    """What came from `start` to `end` (s). `slow`: times are divided by it, so that they are those that were meant."""
    tokens, ttft, rounds = 0, list[float](), list[float]()
    for record in records:
        tokens += sum(start <= time < end for time in record.times)
        if record.times and start <= record.times[0] < end:
            ttft.append(record.times[0] - record.sent)
        rounds += [after - before for before, after in pairwise(_chunks(record.times)) if start <= after < end]
    scale = 1e3 / slow
    return Measures(
        throughput=tokens / (end - start) * slow,
        ttft_p50=scale * quantile(ttft, 0.5),
        ttft_p95=scale * quantile(ttft, 0.95),
        round_p50=scale * quantile(rounds, 0.5),
        round_p95=scale * quantile(rounds, 0.95),
        texts=len(ttft),
        rounds=len(rounds),
    )


def mean(of: Sequence[Measures]) -> Measures:
    """The means of each measure."""
    return Measures(**{each.name: fmean(getattr(one, each.name) for one in of) for each in fields(Measures)})


def _chunks(times: list[float]) -> list[float]:
    """When tokens came, those that came together once."""
    seen: list[float] = []
    for time in times:
        if not seen or time - seen[-1] > _TOGETHER:
            seen.append(time)
    return seen
