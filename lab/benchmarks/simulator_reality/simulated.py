"""The compared configurations, and their simulations.

Each is run, and simulated, some times as slow as it stands. The more processes, the slower: all of them together must
use less than half of the machine. A simulation knows the costs that the configuration states; what the programs
themselves take is added here: it was measured with one drafter that is always right, and with users of the target
alone.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from gateway.balancing import C, NewText, Policy, ordered
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.operation import between
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.record import Record
from lab.simulator.results.gathered import Gathered
from lab.simulator.results.replications import seed_of
from specpair.numbers import quantile

BARS = {"throughput": 0.04, "ttft_p50": 0.1, "ttft_p95": 0.1, "round_p50": 0.1, "round_p95": 0.1}
HEAD = f"{'':22}{'measured':>10}{'simulated':>11}{'difference':>12}{'bar':>7}   of each run"

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
    """The measures from `start` to `end` (s). `slow`: all times are divided by it, which undoes the stretching."""
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
    """The arrival times of tokens; tokens that came together count once."""
    seen: list[float] = []
    for time in times:
        if not seen or time - seen[-1] > _TOGETHER:
            seen.append(time)
    return seen


@dataclass(frozen=True, slots=True)
class Row:
    """One compared measure. `real`, `simulated`: values of each replication, at least one."""

    measure: str  # one of `BARS`
    real: Sequence[float]
    simulated: Sequence[float]

    @property
    def difference(self) -> float:
        """By how much the simulation's mean is above the real one's, as a share of that."""
        return fmean(self.simulated) / fmean(self.real) - 1.0

    @property
    def within(self) -> bool:
        """Whether the difference is within its bar."""
        return abs(self.difference) <= BARS[self.measure]

    @property
    def line(self) -> str:
        pairs = zip(self.real, self.simulated, strict=True)
        each = " ".join(f"{100 * (there / here - 1):+.1f}" for here, there in pairs)
        shown = f"{fmean(self.real):10.2f}{fmean(self.simulated):11.2f}{100 * self.difference:+10.1f} %"
        missed = "" if self.within else "  MISSED"
        return f"  {self.measure:20}{shown}{100 * BARS[self.measure]:5.0f} %   {each}{missed}"


def rows(real: Sequence[Measures], simulated: Sequence[Measures]) -> list[Row]:
    """All measures of a configuration. `real`, `simulated`: of each replication."""
    return [Row(name, *([getattr(each, name) for each in of] for of in (real, simulated))) for name in BARS]


def verdict(blind: dict[str, bool], within: dict[str, bool]) -> str:
    """How many configurations are within all bars. `blind`, `within`: by configuration."""

    def kept(of: list[str]) -> str:
        return f"{sum(within[name] for name in of)} of {len(of)}"

    held_out = [name for name in within if blind[name]]
    return f"within all bars: {kept([*within])} configurations; of the held-out ones, {kept(held_out)}"


MS = 1e-3
# Of each simulation: what an exchange takes, as a share of what was measured, and the number of its draw.
CHANCES = ((0.9, 0), (0.95, 1), (1.0, 2), (1.05, 3), (1.1, 4))

CASES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("configurations.yaml").read_text(encoding="utf-8"))

# What the programs themselves take, in ms that are not multiplied.
EXCHANGE = 2.8  # a request and its reply without jitter: both ends, HTTP, and the relay that plays the link
JITTER = 0.4  # mean of what is random of each of the two
ROUTED = 0.35  # what `specpair router` adds to an exchange (docs/router.md)
PASS, PASS_SEQUENCE = 0.3, 0.09  # a verifier's pass, and each further sequence of it
STEP = 0.54  # a draft step: the controller's reaction, and what a paced pass sleeps too long
_TIMES, _RATES = ("_ms", "_s"), ("rate_rps", "bandwidth_mbps")
_OF_A_NUMBER = ("value", "values", "mean", "min", "max")  # keys of a distribution that are times where it is one


@dataclass(frozen=True, slots=True)
class Case:
    """A configuration that is run for real and simulated, in replications with a seed each."""

    name: str
    slow: float  # all its times are multiplied by this
    configuration: Configuration  # multiplied

    @classmethod
    def named(cls, name: str) -> "Case":
        """One of `CASES`."""
        slow, given = CASES[name]["slow"], Configuration.model_validate(CASES[name]["configuration"])
        return cls(name, slow, stretched(given, slow))

    @property
    def blind(self) -> bool:
        """Whether the case is blind: unseen while the simulator was tuned."""
        return self.name.startswith("held_out")

    def seed(self, replication: int) -> int:
        return seed_of(self.configuration, replication)

    def simulated(self, replication: int) -> Measures:
        """The users' mean measures in its simulations, including the programs' own times."""
        seed, given = self.seed(replication), self.configuration
        return mean([self.measured(records_of(with_overheads(given, each), seed, ties)) for each, ties in CHANCES])

    def measured(self, records: Iterable[Record]) -> Measures:
        """The users' measures after the burn-in, in unstretched times."""
        given = self.configuration
        return measured(records, given.burn_in_ms * MS, given.sim_time_ms * MS, self.slow)


class _Drawn(Policy):
    """A policy that gets the nodes in a random order: the keys of real texts are new in each run."""

    def __init__(self, policy: Policy, draw: int) -> None:
        self._policy, self._draw = policy, draw

    def choose(self, order: Sequence[C], text: NewText) -> C:
        return self._policy.choose(ordered(f"{self._draw}/{text.key}", order), text)


class _Redrawn(Fleet):
    """A fleet whose links and devices are drawn anew, while workload and texts stay those of the seed."""

    def __init__(self, configuration: Configuration, seed: int, observer: Gathered, draw: int) -> None:
        self._draw = draw
        conversations = configuration.workload.conversations(random.Random(f"{seed}/workload"))
        super().__init__(configuration, seed, conversations, observer)
        self.policy = _Drawn(self.policy, draw)

    def stream(self, name: str) -> random.Random:
        return super().stream(f"{self._draw}/{name}" if name.endswith(("/link", "/device")) else name)


def records_of(configuration: Configuration, seed: int, draw: int = 0) -> list[Record]:
    """All records of a simulation. `draw`: another number, another chance of what no seed decides in reality: links,
    a router's ties, and which free device a user takes."""
    kept = Gathered(configuration)
    fleet = _Redrawn(configuration, seed, kept, draw)
    fleet.run(until=configuration.sim_time_ms * MS)
    fleet.interrupt()
    return [record for record, _ in kept.records]


def with_overheads(configuration: Configuration, exchanges: float = 1.0) -> Configuration:
    """A configuration whose passes and links include the programs' own times.

    `exchanges`: what an exchange takes, as a share of `EXCHANGE`.
    """
    given = configuration.model_dump(mode="json", exclude_none=True)
    verifiers = given["devices"]["verifiers"]
    for each in verifiers:
        each["http"] = {"request_ms": 0.0}  # that time is in EXCHANGE
        each["cost"]["decode_ms"] += PASS
        each["cost"]["per_sequence_ms"] += PASS_SEQUENCE
    for each in given["devices"]["drafters"]:
        each["cost"]["decode_ms"] += STEP
    routed = sum(each["count"] for each in verifiers) > 1
    for each in given["connections"]:
        each["rtt_ms"] += exchanges * EXCHANGE + (ROUTED if routed else 0.0)
        each["jitter_ms"] += JITTER
    return Configuration.model_validate(given)


def stretched(configuration: Configuration, factor: float) -> Configuration:
    """The configuration `factor` times as slow. The programs' own times, which are in no configuration, stay."""
    given = configuration.model_dump(mode="json", exclude_none=True)
    devices = configuration.devices
    given["connections"] = [
        {"drafters": drafters.name, "verifiers": verifiers.name}
        | between(configuration.connections, drafters.name, verifiers.name)._asdict()
        for drafters in devices.drafters
        for verifiers in devices.verifiers
    ]
    return Configuration.model_validate({key: _slower(key, value, factor) for key, value in given.items()})


def _slower(key: str, value: Any, factor: float) -> Any:
    """The value of a key with its times multiplied: a time, or a distribution of times."""
    if isinstance(value, dict):
        of_times = _OF_A_NUMBER if key.endswith(_TIMES) else ()
        return {name: _slower(key if name in of_times else name, each, factor) for name, each in value.items()}
    if isinstance(value, list):
        return [_slower(key, each, factor) for each in value]
    if key in _RATES:
        return value / factor
    return factor * value if key.endswith(_TIMES) else value
