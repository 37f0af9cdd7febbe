"""What a simulated drafter-minute costs, with the real controller and by table, and how far the table is off.

One verifier (`simulator.paced`'s target of 25 ms, draft steps of 8 ms) with `--clients` drafters on a link of 5 ms, the
same texts for both. The table is fitted to the real controllers in the seconds in which they are measured. Then the
last number of drafters runs by that table for a minute, `--repeats` times: the same run, but only the first one
computes the target's texts. CPU seconds are the process's. Memory is the most that it has held so far, after each
quarter of the simulated time.

python -m benchmarks.simulator_speed [--clients 4 16] [--seconds 8] [--repeats 4] [--save]
"""

import resource
import time
from collections.abc import Sequence

from benchmarks.harness.report import Report, options_of
from simulator.known_outputs.capacity import start_all, virtual_world
from simulator.known_outputs.capacity_clients import Ours, Setting, session_of
from simulator.known_outputs.capacity_model import KnownOutput, Metrics
from simulator.paced.engine import DRAFTER_8, TARGET_25
from simulator.virtual.table_drafter import Recorded, Table, TableDrafter, disagreement, fit
from simulator.virtual.world import Network, World

SETTING = Setting(TARGET_25, DRAFTER_8)
WARM_UP = 2.0  # seconds before the measurement
FLAGS = {"clients": [4, 16], "seconds": 8.0, "repeats": 4}


class _Recorded(Recorded, Ours):
    """A drafter with all mechanisms on, which is recorded."""


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("simulator_speed", options)
    table = Table()
    for clients in options.clients:
        table, real = _real(report, clients, options.seconds)
        off = disagreement(real, _by_table(report, clients, options.seconds, table))
        report.line(f"    table off by: throughput {off.throughput:+.1%}, p50 {off.p50:+.1%}, p95 {off.p95:+.1%}")
    for _ in range(options.repeats):
        _by_table(report, options.clients[-1], 60.0 - WARM_UP, table)
    report.save()


def _real(report: Report, clients: int, seconds: float) -> tuple[Table, Metrics]:
    world, _ = virtual_world(SETTING, clients)
    crowd = [_Recorded(world, KnownOutput(number), SETTING, f"session-{number}") for number in range(clients)]
    start_all(world, crowd)
    began = time.process_time()
    table = fit(world, crowd, WARM_UP, seconds)
    _tell(report, "controller", world, clients, time.process_time() - began, [_peak()])
    return table, Metrics.of([each.course.times for each in crowd], WARM_UP, WARM_UP + seconds)


def _by_table(report: Report, clients: int, seconds: float, table: Table) -> Metrics:
    world, _ = virtual_world(SETTING, clients)
    crowd = [_table_drafter(world, number, table) for number in range(clients)]
    start_all(world, crowd)
    began, peaks, end = time.process_time(), [], WARM_UP + seconds
    for quarter in (0.25, 0.5, 0.75, 1.0):
        world.run(until=quarter * end)
        peaks.append(_peak())
    _tell(report, "table", world, clients, time.process_time() - began, peaks)
    return Metrics.of([each.course.times for each in crowd], WARM_UP, end)


def _table_drafter(world: World, number: int, table: Table) -> TableDrafter:
    text = KnownOutput(number)
    name = f"session-{number}"
    return TableDrafter(world, session_of(name, text), text.draft, table, Network(SETTING.rtt), seed=f"0/{name}")


def _tell(report: Report, name: str, world: World, clients: int, cpu: float, peaks: Sequence[float]) -> None:
    minutes = clients * world.now / 60.0
    report.line(
        f"{clients:5} drafters, {name:10}  {world.now:5.1f} s simulated in {cpu:6.2f} CPU s, "
        f"{cpu / minutes:.3f} a drafter-minute, {world.events / cpu:,.0f} events/s, "
        f"memory {' '.join(f'{each:.0f}' for each in peaks)} MiB"
    )


def _peak() -> float:
    """The most memory that this process has held so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
