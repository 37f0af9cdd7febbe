"""The configurations that are compared, each with how many times as slow as it stands it is run.

The more processes, the slower: all of them together must use less than half of the machine.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.simulator_reality.measures import Measures, mean, measured
from benchmarks.simulator_reality.overheads import with_overheads
from benchmarks.simulator_reality.stretched import stretched
from simulator.configuration.configuration import Configuration
from simulator.configuration.reading import read
from simulator.fleet.observer import Sample
from simulator.fleet.record import Record
from simulator.running.simulate import seed_of, simulate

FOLDER = Path(__file__).parent / "configurations"
MS = 1e-3
EXCHANGES = (0.9, 0.95, 1.0, 1.05, 1.1)  # what an exchange takes in the simulations, as a share of what was measured

_SEEN = {
    "one_remote": 2.0,
    "eight_lockstep": 4.0,
    "eight_remote": 4.0,
    "three_target": 4.0,
    "thirty_two_remote": 5.0,
    "four_far": 3.0,
    "twelve_target": 4.0,
    "six_prompts": 4.0,
}
# Written down before their first comparison, and run when nothing was changed any more.
_HELD_OUT = {
    "held_out_lone": 3.0,
    "held_out_fixed": 3.0,
    "held_out_turns": 4.0,
    "held_out_slots": 5.0,
    "held_out_mixed": 5.0,
    "held_out_lockstep": 6.0,
    "held_out_three_target": 4.0,
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
        return mean([self.measured(records_of(with_overheads(given, each), seed)) for each in EXCHANGES])

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


def records_of(configuration: Configuration, seed: int) -> list[Record]:
    """All records of a simulation."""
    kept = _Kept()
    simulate(configuration, seed, kept)
    return kept.records
