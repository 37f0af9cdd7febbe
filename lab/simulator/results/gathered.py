"""What came of one replication, gathered while it runs, in memory that does not grow with simulated time."""

import math
from bisect import bisect_left
from collections.abc import Sequence

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.fleet.observer import Sample
from lab.simulator.fleet.record import Record, Status
from lab.simulator.results.fidelity import Fidelity
from lab.simulator.results.measures import MEASURES
from lab.simulator.results.nodes import Nodes, since
from lab.simulator.results.requests import MS, Requests, decided, share
from lab.simulator.results.series import Series
from lab.simulator.results.timelines import Chosen, Shown

_JOULES_A_KWH = 3.6e6
_GROUPED = ("whole", "slo_attainment", "ttft_p50_ms", "ttft_p95_ms", "tpot_p95_ms", "latency_p95_ms")


class Gathered:
    """An observer of a replication. The burn-in is left out, but from the series.

    Requests count that were sent behind the burn-in; throughput, requests a second, goodput and SLO attainment count
    what came, what ended and what was decided behind it. Quantiles are 0.1 % off at most (see `Histogram`).
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._begin, self._end = configuration.burn_in_ms * MS, configuration.sim_time_ms * MS
        self._tokens = 0  # that came behind the burn-in, as the next two
        self._ended = 0  # requests that became whole
        self._good = 0  # of these, those that kept their bounds
        self._requests = Requests()
        self._tenants: dict[str, Requests] = {}
        self._devices: dict[str, Requests] = {}
        self._nodes = Nodes()
        self._samples: dict[str, Sample] = {}  # the last ones, by verifier
        self._series = Series(self._end)
        self._speeds = _Fairness()
        self._chosen = Chosen(self._begin, configuration.seed)
        self.fidelity = Fidelity(self._begin)

    # The observer.

    def record(self, record: Record) -> None:
        decision = decided(record, self._configuration.slo_of(record.tenant))
        self.fidelity.add(record)
        self._chosen.add(record)
        self._series.record(record, decision)
        self._tokens += len(record.times) - bisect_left(record.times, self._begin)
        if record.status is Status.WHOLE and record.end >= self._begin:
            self._ended += 1
            self._good += decision is not None and decision.kept
        groups = (
            self._requests,
            self._tenants.setdefault(record.tenant, Requests()),
            self._devices.setdefault(record.device, Requests()),
        )
        if decision is not None and decision.at >= self._begin:
            for each in groups:
                each.decide(decision)
        if record.sent < self._begin:
            return
        self._speeds.add(record, self._end)
        for each in groups:
            each.add(record)

    def sample(self, samples: Sequence[Sample]) -> None:
        for each in samples:
            if (before := self._samples.get(each.node)) is None:
                continue
            step = since(before, each)
            self._series.step(each.at, step)
            if before.at >= self._begin:
                self._nodes.add(each.node, step)
        self._samples = {each.node: each for each in samples}

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
            "fairness": self._speeds.index(),
            "energy_j_per_token": share(energy, self._tokens) if energy else math.nan,
            "cost_per_million": share(1e6 * cost, self._tokens) if cost else math.nan,
            **self._requests.measures(),
            **self._nodes.all().measures(),
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
        return {name: node.measures() for name, node in self._nodes.by_name.items()}

    def series(self) -> dict[str, list[float]]:
        """Some measures over time: see `Series`."""
        return self._series.values(self._end)

    def timelines(self) -> list[Shown]:
        """A few requests with their spans, if these were noted."""
        return self._chosen.chosen()

    def _device_seconds(self) -> dict[str, float]:
        """How long devices of each kind were there, all together."""
        drafters = self._configuration.devices.drafters
        return self._nodes.seconds() | {kind.name: kind.count * max(self._end - self._begin, 0.0) for kind in drafters}

    def _joules(self) -> float:
        watts = self._configuration.prices.watts
        return math.fsum(watts.get(kind, 0.0) * seconds for kind, seconds in self._device_seconds().items())

    def _price(self) -> float:
        prices = self._configuration.prices
        hourly = math.fsum(
            prices.per_hour.get(kind, 0.0) * each / 3600 for kind, each in self._device_seconds().items()
        )
        return hourly + prices.per_kwh * self._joules() / _JOULES_A_KWH


def _grouped(groups: dict[str, Requests]) -> dict[str, dict[str, float]]:
    found = {name: groups[name].measures() for name in sorted(groups)}
    return {name: {each: values[each] for each in _GROUPED} for name, values in found.items()}


class _Fairness:
    """Jain's index over conversations. Of each, only that is held which is under way."""

    def __init__(self) -> None:
        self._under_way: dict[str, tuple[int, float]] = {}  # tokens, and seconds that requests ran
        self._count, self._sum, self._squares = 0, 0.0, 0.0  # of the speeds of those that are over

    def add(self, record: Record, end: float) -> None:
        """`end`: of the simulated time, up to which an unfinished request runs."""
        tokens, seconds = self._under_way.pop(record.conversation, (0, 0.0))
        until = end if record.status is Status.UNFINISHED or not record.times else record.end
        tokens, seconds = tokens + len(record.times), seconds + until - record.sent
        if not record.last:
            self._under_way[record.conversation] = tokens, seconds
        elif seconds > 0:
            speed = tokens / seconds
            self._count, self._sum, self._squares = self._count + 1, self._sum + speed, self._squares + speed * speed

    def index(self) -> float:
        speeds = [tokens / seconds for tokens, seconds in self._under_way.values() if seconds > 0]
        count, total = self._count + len(speeds), self._sum + math.fsum(speeds)
        return share(total * total, count * (self._squares + math.fsum(speed * speed for speed in speeds)))
