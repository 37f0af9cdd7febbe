"""One configuration, for real and simulated."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from benchmarks.simulator_reality import conductor
from benchmarks.simulator_reality.measures import Measures, measured
from benchmarks.simulator_reality.overheads import with_overheads
from benchmarks.simulator_reality.stretched import stretched
from simulator.configuration.configuration import Configuration
from simulator.configuration.reading import read
from simulator.fleet.observer import Sample
from simulator.fleet.record import Record
from simulator.running.simulate import seed_of, simulate

MS = 1e-3


class _Kept:
    """Keeps all records of a simulation."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def record(self, record: Record) -> None:
        self.records.append(record)

    def sample(self, samples: Sequence[Sample]) -> None:
        pass


def simulated(configuration: Configuration, slow: float) -> Measures:
    """What users see of the simulation of a configuration, as slow as the real one."""
    kept, slowed = _Kept(), stretched(configuration, slow)
    simulate(with_overheads(slowed), seed_of(slowed, 0), kept)
    return measured(kept.records, *window(slowed), slow)


def window(configuration: Configuration) -> tuple[float, float]:
    """From when until when it is measured (s)."""
    return configuration.burn_in_ms * MS, configuration.sim_time_ms * MS


def compared(file: Path, slow: float) -> list[str]:
    """Lines on a configuration: its simulation, its real run, and the error of each measure."""
    configuration = read(file)
    slowed = stretched(configuration, slow)
    there = simulated(configuration, slow)
    real = conductor.run(slowed, seed_of(slowed, 0))
    here = measured(real.records, *window(slowed), slow)
    lines = [
        f"\n{file.stem}: times {slow:g} fold; machine used {real.used:.2f}, passes {real.lateness:.4f} of their"
        f" time, p99 {real.late_p99:.4f}{'  VOID' if real.void else ''}"
    ]
    for each in fields(Measures):
        simulation, reality = getattr(there, each.name), getattr(here, each.name)
        lines.append(f"  {each.name:12} {reality:9.2f} {simulation:9.2f} {100 * (simulation / reality - 1):+6.1f} %")
    return lines
