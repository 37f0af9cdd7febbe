"""The configurations that are compared, each with how many times as slow as it stands it is run.

The more processes, the slower: all of them together must use less than half of the machine.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.balancing.candidate import NewText
from gateway.balancing.policies import C, Policy
from gateway.balancing.rendezvous import ordered
from lab.benchmarks.simulator_reality.measures import Measures, mean, measured
from lab.benchmarks.simulator_reality.overheads import with_overheads
from lab.benchmarks.simulator_reality.stretched import stretched
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.reading import read
from lab.simulator.configuration.workload import WorkloadKeys
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.record import Record, Sample
from lab.simulator.fleet.settings import FleetSetting
from lab.simulator.simulation import seed_of, setting_of

FOLDER = Path(__file__).parent / "configurations"
MS = 1e-3
# Of each simulation: what an exchange takes, as a share of what was measured, and the number of its draw.
CHANCES = ((0.9, 0), (0.95, 1), (1.0, 2), (1.05, 3), (1.1, 4))

_SEEN = {
    "one_remote": 2.0,
    "eight_lockstep": 4.0,
    "eight_remote": 4.0,
    "three_target": 4.0,
    "thirty_two_remote": 5.0,
    "four_far": 3.0,
    "twelve_target": 4.0,
    "six_prompts": 4.0,
    "sixteen_for_eight_slots": 5.0,
    "twelve_at_three": 5.0,
}
# Written down before their first comparison, and run when nothing was changed any more.
_HELD_OUT = {
    "held_out_lone": 3.0,
    "held_out_fixed": 3.0,
    "held_out_turns": 4.0,
    "held_out_lockstep": 6.0,
    "held_out_three_target": 4.0,
    "held_out_scarce": 5.0,
    "held_out_crowd": 5.0,
}
CASES = _SEEN | _HELD_OUT


@dataclass(frozen=True, slots=True)
class Case:
    """A configuration that is run for real and simulated, in replications with a seed each."""

    name: str
    slow: float  # all its times are multiplied by this
    configuration: Configuration  # multiplied

    @classmethod
    def named(cls, name: str) -> "Case":
        """One of `CASES`."""
        return cls(name, CASES[name], stretched(read(FOLDER / f"{name}.yaml"), CASES[name]))

    @property
    def blind(self) -> bool:
        """Whether it was not looked at while anything was changed."""
        return self.name in _HELD_OUT

    def seed(self, replication: int) -> int:
        return seed_of(self.configuration, replication)

    def simulated(self, replication: int) -> Measures:
        """What users see of its simulations in the mean, the times of the programs themselves included."""
        seed, given = self.seed(replication), self.configuration
        return mean([self.measured(records_of(with_overheads(given, each), seed, ties)) for each, ties in CHANCES])

    def measured(self, records: Iterable[Record]) -> Measures:
        """What users see behind the burn-in, in times that are not multiplied."""
        given = self.configuration
        return measured(records, given.burn_in_ms * MS, given.sim_time_ms * MS, self.slow)


class _Kept:
    """Keeps all records of a simulation."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def record(self, record: Record) -> None:
        self.records.append(record)

    def sample(self, samples: Sequence[Sample]) -> None:
        pass


class _Drawn(Policy):
    """A policy that gets the nodes in an order of its own: the keys of real texts are new in each run."""

    def __init__(self, policy: Policy, draw: int) -> None:
        self._policy, self._draw = policy, draw

    def choose(self, order: Sequence[C], text: NewText) -> C:
        return self._policy.choose(ordered(f"{self._draw}/{text.key}", order), text)


class _Redrawn(Fleet):
    """A fleet whose links and devices are drawn anew, while workload and texts stay those of the seed."""

    def __init__(self, setting: FleetSetting, seed: int, workload: WorkloadKeys, kept: _Kept, draw: int) -> None:
        self._draw = draw
        drawn = replace(setting, policy=lambda: _Drawn(setting.policy(), draw))
        super().__init__(drawn, workload.conversations(random.Random(f"{seed}/workload")), kept)

    def stream(self, name: str) -> random.Random:
        return super().stream(f"{self._draw}/{name}" if name.endswith(("/link", "/device")) else name)


def records_of(configuration: Configuration, seed: int, draw: int = 0) -> list[Record]:
    """All records of a simulation. `draw`: another number, another chance of what no seed decides in reality: links,
    a router's ties, and which free device a user takes."""
    kept = _Kept()
    fleet = _Redrawn(setting_of(configuration, seed), seed, configuration.workload, kept, draw)
    fleet.run(until=configuration.sim_time_ms * MS)
    fleet.interrupt()
    return kept.records
