"""What came of one replication, gathered while it runs."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.keys import MS
from lab.simulator.fleet.record import Record, Sample, Status
from lab.simulator.results.measures import MEASURES
from lab.simulator.results.requests import Requests, decided, share
from lab.simulator.results.series import Series, VerifierLoad

_JOULES_A_KWH = 3.6e6
_GROUPED = ("whole", "slo_attainment", "ttft_p50_ms", "ttft_p95_ms", "tpot_p95_ms", "latency_p95_ms")


class Gathered:
    """An observer of a replication. The burn-in is left out, but from the series.

    Requests count that were sent behind the burn-in; throughput, requests a second, goodput and SLO attainment count
    what came, what ended and what was decided behind it.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._begin, self._end = configuration.burn_in_ms * MS, configuration.sim_time_ms * MS
        self._tokens = 0  # that came behind the burn-in, as the next two
        self._ended = 0  # requests that became whole
        self._good = 0  # of these, those that kept their bounds
        self._requests = Requests()
        self._tenants: dict[str, Requests] = defaultdict(Requests)
        self._devices: dict[str, Requests] = defaultdict(Requests)
        self._loads: dict[str, VerifierLoad] = defaultdict(VerifierLoad)  # by verifier
        self._samples: dict[str, Sample] = {}  # the last ones, by verifier
        self._series = Series(self._end)
        self._conversations: dict[str, tuple[int, float]] = {}  # tokens of each, and seconds that its requests ran

    # The observer.

    def record(self, record: Record) -> None:
        decision = decided(record, self._configuration.slo_of(record.tenant))
        self._series.record(record, decision)
        self._tokens += len(record.times) - bisect_left(record.times, self._begin)
        if record.status is Status.WHOLE and record.end >= self._begin:
            self._ended += 1
            self._good += decision is not None and decision.kept
        groups = self._requests, self._tenants[record.tenant], self._devices[record.device]
        if decision is not None and decision.at >= self._begin:
            for each in groups:
                each.decide(decision)
        if record.sent < self._begin:
            return
        for each in groups:
            each.add(record)
        tokens, seconds = self._conversations.get(record.conversation, (0, 0.0))
        until = self._end if record.status is Status.UNFINISHED or not record.times else record.end
        self._conversations[record.conversation] = tokens + len(record.times), seconds + until - record.sent

    def sample(self, samples: Sequence[Sample]) -> None:
        for each in samples:
            if (before := self._samples.get(each.node)) is None:
                continue
            load = VerifierLoad.between(before, each)
            self._series.add(each.at, load)
            if before.at >= self._begin:
                self._loads[each.node] += load
        self._samples |= {each.node: each for each in samples}

    def ended(self, at: float) -> None:
        """The replication has ended at `at`, perhaps before its time."""
        self._end = at

    # What came of it.

    def measures(self) -> dict[str, float]:
        """All of MEASURES by name; not a number, where there is no value."""
        seconds = max(self._end - self._begin, 0.0)
        energy, cost = self._joules(), self._price()
        found = {
            "throughput_tps": share(self._tokens, seconds),
            "requests_rps": share(self._ended, seconds),
            "goodput_rps": share(self._good, seconds) if self._configuration.promises else math.nan,
            "fairness": self._fairness(),
            "energy_j_per_token": share(energy, self._tokens) if energy else math.nan,
            "cost_per_million": share(1e6 * cost, self._tokens) if cost else math.nan,
            **self._requests.measures(),
            **sum(self._loads.values(), VerifierLoad()).measures(),
        }
        return {name: found[name] for name in MEASURES}

    def tenants(self) -> dict[str, dict[str, float]]:
        """Some measures of each tenant."""
        return _grouped(self._tenants)

    def devices(self) -> dict[str, dict[str, float]]:
        """Some measures of the requests from each kind of drafters."""
        return _grouped(self._devices)

    def nodes(self) -> dict[str, dict[str, float]]:
        """Some measures of each verifier."""
        return {name: load.measures() for name, load in self._loads.items()}

    def series(self) -> dict[str, list[float]]:
        """Some measures over time: see `Series`."""
        return self._series.values(self._end)

    def _device_seconds(self) -> dict[str, float]:
        """How long devices of each kind were there, all together."""
        found = {
            kind.name: kind.count * max(self._end - self._begin, 0.0) for kind in self._configuration.devices.drafters
        }
        for name, load in self._loads.items():
            kind = self._samples[name].kind
            found[kind] = found.get(kind, 0.0) + load.up
        return found

    def _joules(self) -> float:
        watts = self._configuration.prices.watts
        return math.fsum(watts.get(kind, 0.0) * seconds for kind, seconds in self._device_seconds().items())

    def _price(self) -> float:
        prices = self._configuration.prices
        seconds = self._device_seconds()
        hourly = math.fsum(prices.per_hour.get(kind, 0.0) * each / 3600 for kind, each in seconds.items())
        return hourly + prices.per_kwh * self._joules() / _JOULES_A_KWH

    def _fairness(self) -> float:
        """Jain's index over the speeds of conversations."""
        speeds = [tokens / seconds for tokens, seconds in self._conversations.values() if seconds > 0]
        return share(math.fsum(speeds) ** 2, len(speeds) * math.fsum(speed * speed for speed in speeds))


def _grouped(groups: Mapping[str, Requests]) -> dict[str, dict[str, float]]:
    found = {name: groups[name].measures() for name in sorted(groups)}
    return {name: {each: values[each] for each in _GROUPED} for name, values in found.items()}
