"""What requests had, in memory that does not grow with them."""

import math
from dataclasses import dataclass, field
from itertools import pairwise

from simulator.configuration.operation import Slo
from simulator.fleet.record import Record, Status
from simulator.results.histogram import Histogram
from simulator.results.measures import DISTRIBUTED, PERCENTILES

MS = 1e-3


def kept(record: Record, slo: Slo) -> bool | None:
    """Whether a request kept its bounds. None: there are none, or it was under way, and could have kept them yet."""
    if slo.ttft_ms is slo.tpot_ms is slo.latency_ms is None:
        return None
    values = (
        (record.ttft if record.times else 0.0, slo.ttft_ms),
        (record.tpot, slo.tpot_ms),
        (record.end - record.sent if record.times else 0.0, slo.latency_ms),
    )
    within = all(bound is None or value <= bound * MS for value, bound in values)
    if record.status is Status.UNFINISHED:
        return None if within else False
    return within and record.status is Status.WHOLE


def distinct(times: list[float]) -> list[float]:
    """The times, each once: when chunks of tokens came."""
    return [at for at, before in zip(times, [-math.inf, *times], strict=False) if at != before]


@dataclass(slots=True)
class Requests:
    """Requests of a group that were sent behind the burn-in. Times in seconds."""

    count: dict[Status, int] = field(default_factory=lambda: dict.fromkeys(Status, 0))
    judged: int = 0  # that kept their bounds, or did not
    kept: int = 0
    tokens: int = 0  # behind the first chunk of each
    rounds: int = 0  # chunks behind the first
    drafted: int = 0
    accepted: int = 0
    times: dict[str, Histogram] = field(default_factory=lambda: {name: Histogram() for name in DISTRIBUTED})

    def add(self, record: Record, good: bool | None) -> None:
        """Count a request. `good`: whether it kept its bounds."""
        self.count[record.status] += 1
        if good is not None:
            self.judged += 1
            self.kept += good
        self.drafted += record.drafted
        self.accepted += record.accepted
        if not record.times:
            return
        chunks = distinct(record.times)
        self.rounds += len(chunks) - 1
        self.tokens += len(record.times) - record.times.count(chunks[0])
        self.times["ttft"].add(record.ttft)
        for before, after in pairwise(chunks):
            self.times["round"].add(after - before)
        if record.status is Status.WHOLE:
            self.times["latency"].add(record.end - record.sent)
            if len(record.times) > 1:
                self.times["tpot"].add(record.tpot)

    def measures(self) -> dict[str, float]:
        """Those of MEASURES that requests have."""
        found = {
            "slo_attainment": share(self.kept, self.judged),
            "acceptance": share(self.accepted, self.drafted),
            "tokens_per_round": share(self.tokens, self.rounds),
            **{status.value: float(count) for status, count in self.count.items()},
        }
        for name, values in self.times.items():
            quantiles = values.quantiles(*PERCENTILES.values())
            found |= {f"{name}_{each}_ms": value / MS for each, value in zip(PERCENTILES, quantiles, strict=True)}
        return found


def share(part: float, whole: float) -> float:
    """Not a number, if there is nothing."""
    return part / whole if whole else math.nan
