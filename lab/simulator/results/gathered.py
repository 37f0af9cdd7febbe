"""Collects the requests and samples of one replication, and computes their measures."""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import NamedTuple

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.keys import MS
from lab.simulator.configuration.operation import SloKeys
from lab.simulator.fleet.record import Record, Sample, Status
from lab.simulator.results.measures import MEASURES, PERCENTILES
from specpair.numbers import quantile


class SloDecision(NamedTuple):
    """Whether a request kept its bounds, and when that was decided, in seconds."""

    at: float
    kept: bool


def decided(record: Record, slo: SloKeys) -> SloDecision | None:
    """The decision on a request's bounds. None: there are no bounds, or the request could still keep them.

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
    """The distinct times: when chunks of tokens came."""
    return [*dict.fromkeys(times)]


def measures_of(records: Sequence[Record], decisions: Sequence[SloDecision]) -> dict[str, float]:
    """The MEASURES of a group's requests. `decisions`: of the requests that were decided."""
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
    """A percentile; not a number if there are no values."""
    return quantile(values, part) if values else math.nan


def share(part: float, whole: float) -> float:
    """A share; not a number if the whole is 0."""
    return part / whole if whole else math.nan


_JOULES_A_KWH = 3.6e6
_GROUPED = ("whole", "slo_attainment", "ttft_p50_ms", "ttft_p95_ms", "tpot_p95_ms", "latency_p95_ms")
_MOST = 60  # intervals of a series
_LEAST_SECONDS = 2.0  # of an interval: shorter ones have so few tokens and requests that their figures are noise
_FEWEST = 12  # intervals, however short the run is


@dataclass(slots=True)
class VerifierLoad:
    """The work of one verifier or several. Sums over samples are means times their number."""

    seconds: float = 0.0
    busy: float = 0.0  # seconds of passes
    passes: int = 0
    rows: int = 0
    tokens: int = 0
    samples: int = 0
    waiting: int = 0  # requests, over samples
    held: int = 0  # slots, over samples
    slots: int = 0  # over samples

    @classmethod
    def between(cls, last: Sample, now: Sample) -> "VerifierLoad":
        """Of a verifier between two samples."""
        return cls(
            seconds=now.at - last.at,
            busy=now.busy - last.busy,
            passes=now.passes - last.passes,
            rows=now.rows - last.rows,
            tokens=now.tokens - last.tokens,
            samples=1,
            waiting=now.waiting,
            held=now.held,
            slots=now.slots,
        )

    def __add__(self, other: "VerifierLoad") -> "VerifierLoad":
        return VerifierLoad(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def measures(self) -> dict[str, float]:
        """The MEASURES of verifiers."""
        return {
            # A pass is counted as a whole when it begins.
            "utilisation": min(share(self.busy, self.seconds), 1.0) if self.seconds else math.nan,
            "occupancy": share(self.rows, self.passes),
            "tokens_per_pass": share(self.tokens, self.passes),
            "queue_depth": share(self.waiting, self.samples),
            "slots_held": share(self.held, self.slots),
        }


class Gathered:
    """An observer of a replication. Leaves out the burn-in, except from the series.

    Requests count that were sent behind the burn-in; throughput, requests a second, goodput and SLO attainment count
    what came, what ended and what was decided behind it.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._begin, self._end = configuration.burn_in_ms * MS, configuration.sim_time_ms * MS
        self.records: list[tuple[Record, SloDecision | None]] = []
        self._loads: list[tuple[Sample, Sample, VerifierLoad]] = []  # what a verifier did between two samples
        self._last: dict[str, Sample] = {}  # by verifier

    # The observer.

    def record(self, record: Record) -> None:
        self.records.append((record, decided(record, self._configuration.slo_of(record.tenant))))

    def sample(self, samples: Sequence[Sample]) -> None:
        for each in samples:
            if (before := self._last.get(each.node)) is not None:
                self._loads.append((before, each, VerifierLoad.between(before, each)))
            self._last[each.node] = each

    # What came of it.

    def measures(self) -> dict[str, float]:
        """All MEASURES by name; not a number without a value."""
        seconds = self._end - self._begin
        tokens = sum(len(each.times) - bisect_left(each.times, self._begin) for each, _ in self.records)
        ended = [
            decision is not None and decision.kept
            for each, decision in self.records
            if each.status is Status.WHOLE and each.end >= self._begin
        ]
        energy, cost = self._joules(), self._price()
        found = {
            "throughput_tps": share(tokens, seconds),
            "requests_rps": share(len(ended), seconds),
            "goodput_rps": share(sum(ended), seconds) if self._configuration.promises else math.nan,
            "energy_j_per_token": share(energy, tokens) if energy else math.nan,
            "cost_per_million": share(1e6 * cost, tokens) if cost else math.nan,
            **self._measures_of(lambda record: True),
            **sum(self._by_verifier().values(), VerifierLoad()).measures(),
        }
        return {name: found[name] for name in MEASURES}

    def tenants(self) -> dict[str, dict[str, float]]:
        """Some measures of each tenant."""
        return self._grouped(lambda record: record.tenant)

    def devices(self) -> dict[str, dict[str, float]]:
        """Some measures of the requests from each kind of drafters."""
        return self._grouped(lambda record: record.device)

    def nodes(self) -> dict[str, dict[str, float]]:
        """Some measures of each verifier."""
        return {name: load.measures() for name, load in self._by_verifier().items()}

    def series(self) -> dict[str, list[float]]:
        """Some measures in equal intervals of the simulated time; not a number, where there is none. Each figure counts
        where it became known: at the end, many requests are under way."""
        count = min(max(math.floor(self._end / _LEAST_SECONDS), _FEWEST), _MOST)
        width = self._end / count

        def interval(at: float) -> int:
            return min(int(at / width), count - 1)

        tokens = Counter(interval(at) for each, _ in self.records for at in each.times)
        ttft, tpot = defaultdict[int, list[float]](list), defaultdict[int, list[float]](list)
        kept, loads = defaultdict[int, list[bool]](list), defaultdict[int, VerifierLoad](VerifierLoad)
        for record, decision in self.records:
            if record.times:
                ttft[interval(record.first)].append(record.ttft)
            if record.status is Status.WHOLE and len(record.times) > 1:
                tpot[interval(record.end)].append(record.tpot)
            if decision is not None:
                kept[interval(decision.at)].append(decision.kept)
        for _, sample, load in self._loads:
            loads[interval(sample.at)] += load
        values = [
            {
                "throughput_tps": share(tokens[at], width),
                "ttft_p95_ms": percentile(ttft[at], 0.95) / MS,
                "tpot_p95_ms": percentile(tpot[at], 0.95) / MS,
                "slo_attainment": share(sum(kept[at]), len(kept[at])),
                **loads[at].measures(),
            }
            for at in range(count)
        ]
        return {name: [each[name] for each in values] for name in values[0]}

    def _measures_of(self, belongs: Callable[[Record], bool]) -> dict[str, float]:
        """The measures of a group's requests."""
        group = [(record, decision) for record, decision in self.records if belongs(record)]
        decisions = [each for _, each in group if each is not None and each.at >= self._begin]
        return measures_of([record for record, _ in group if record.sent >= self._begin], decisions)

    def _grouped(self, of: Callable[[Record], str]) -> dict[str, dict[str, float]]:
        found = {}
        for name in sorted({of(record) for record, _ in self.records}):
            values = self._measures_of(lambda record, name=name: of(record) == name)  # type: ignore[misc]
            found[name] = {each: values[each] for each in _GROUPED}
        return found

    def _by_verifier(self) -> dict[str, VerifierLoad]:
        """The work of each verifier after the burn-in."""
        found: dict[str, VerifierLoad] = {}
        for before, sample, load in self._loads:
            if before.at >= self._begin:
                found[sample.node] = found.get(sample.node, VerifierLoad()) + load
        return found

    def _joules(self) -> float:
        """Energy of all devices after the burn-in, in joules."""
        return self._of_devices(self._configuration.prices.watts)

    def _price(self) -> float:
        prices = self._configuration.prices
        return self._of_devices(prices.per_hour) / 3600 + prices.per_kwh * self._joules() / _JOULES_A_KWH

    def _of_devices(self, rates: Mapping[str, float]) -> float:
        """The sum over all devices of a rate. `rates`: of one device, a second, by kind.

        Verifiers count from the first sample on, as for their utilisation.
        """
        drafters = self._configuration.devices.drafters
        seconds = [(kind.name, kind.count * (self._end - self._begin)) for kind in drafters]
        seconds += [(self._last[name].kind, load.seconds) for name, load in self._by_verifier().items()]
        return math.fsum(rates.get(kind, 0.0) * each for kind, each in seconds)
