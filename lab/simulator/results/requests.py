"""What requests had: times, tokens, and whether they kept their bounds."""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from lab.simulator.configuration.keys import MS
from lab.simulator.configuration.operation import Slo
from lab.simulator.fleet.record import Record, Status
from lab.simulator.results.measures import DISTRIBUTED, PERCENTILES
from specpair.quantile import quantile


class Decision(NamedTuple):
    """When it was clear whether a request kept its bounds, in seconds, and whether it did."""

    at: float
    kept: bool


def decided(record: Record, slo: Slo) -> Decision | None:
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
        return Decision(min(broken), False)
    return None if record.status is Status.UNFINISHED else Decision(record.over, whole)


def distinct(times: list[float]) -> list[float]:
    """The times, each once: when chunks of tokens came."""
    return [at for at, before in zip(times, [-math.inf, *times], strict=False) if at != before]


@dataclass(slots=True)
class Requests:
    """Requests of a group that were sent behind the burn-in, and those decided behind it. Times in seconds."""

    count: dict[Status, int] = field(default_factory=lambda: dict.fromkeys(Status, 0))
    decided: int = 0
    kept: int = 0  # of these
    tokens: int = 0  # behind the first chunk of each
    rounds: int = 0  # chunks behind the first
    drafted: int = 0
    accepted: int = 0
    times: dict[str, "array[float]"] = field(default_factory=lambda: {name: array("d") for name in DISTRIBUTED})

    def decide(self, decision: Decision) -> None:
        """Count what became of a request's bounds."""
        self.decided += 1
        self.kept += decision.kept

    def add(self, record: Record) -> None:
        """Count a request."""
        self.count[record.status] += 1
        self.drafted += record.drafted
        self.accepted += record.accepted
        if not record.times:
            return
        chunks = distinct(record.times)
        self.rounds += len(chunks) - 1
        self.tokens += len(record.times) - record.times.count(chunks[0])
        self.times["ttft"].append(record.ttft)
        self.times["round"].extend(after - before for before, after in pairwise(chunks))
        if record.status is Status.WHOLE:
            self.times["latency"].append(record.end - record.sent)
            if len(record.times) > 1:
                self.times["tpot"].append(record.tpot)

    def measures(self) -> dict[str, float]:
        """Those of MEASURES that requests have."""
        found = {
            "slo_attainment": share(self.kept, self.decided),
            "acceptance": share(self.accepted, self.drafted),
            "tokens_per_round": share(self.tokens, self.rounds),
            **{status.value: float(count) for status, count in self.count.items()},
        }
        for name, values in self.times.items():
            ordered = sorted(values)
            found |= {f"{name}_{each}_ms": percentile(ordered, part) / MS for each, part in PERCENTILES.items()}
        return found


def percentile(values: Sequence[float], part: float) -> float:
    """Not a number, if there are no values."""
    return quantile(values, part) if values else math.nan


def share(part: float, whole: float) -> float:
    """Not a number, if there is nothing."""
    return part / whole if whole else math.nan
