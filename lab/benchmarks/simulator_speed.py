"""What a simulated drafter-minute costs, with the real controller and by table, and how far the table is off.

One verifier. Drafters (steps of 8 ms) write long texts at one verifier (passes of 25 ms and more) on links of `--rtts`
ms, first with the real controller, then by a table that is fitted to them in the same seconds, the same texts for both.
"off by": their tokens per second all together, and the medians over drafters of their median and 95th percentile of
times between tokens.

A fleet. `--fleet` drafters, `--per-verifier` of them at each verifier on a link of 20 ms, whose users ask for text
after text; those by table beside probes with the real controller. Then `--large` ones for `--large-seconds`, the first
of `--per-verifier` at each. CPU seconds are the process's, from the first event on, with the garbage collector as the
simulator's commands set it; memory is the most that it has held so far, after each quarter of the simulated time. The
profile is that of another run (`cProfile`), and counts own time.

python -m lab.benchmarks.simulator_speed [--rtts 0.4 30 80] [--clients 1 16 64] [--fleet 1000] [--per-verifier 64 16]
    [--large 10000] [--save]
"""

import cProfile
import pstats
import random
import resource
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.benchmarks.harness.report import ROOT, Report, options_of
from lab.simulator.costs.linear import LinearCost
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.observer import Sample
from lab.simulator.fleet.record import Record
from lab.simulator.fleet.settings import DeviceKind, FleetSetting, Mode, VerifierKind
from lab.simulator.known_outputs.capacity import start_all, virtual_world
from lab.simulator.known_outputs.capacity_clients import Ours, Setting, session_of
from lab.simulator.known_outputs.capacity_model import KnownOutput, Metrics
from lab.simulator.paced.engine import DRAFTER_8, TARGET_25
from lab.simulator.processes import collect_seldom
from lab.simulator.results.fidelity import Fidelity
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.table import Table
from lab.simulator.virtual.table_drafter import Recorded, TableDrafter, fit
from lab.simulator.virtual.world import World
from lab.simulator.workload.conversation import Conversation, Turn

FLAGS = {
    "rtts": [0.4, 30.0, 80.0],
    "clients": [1, 16, 64],
    "fleet": 1000,
    "per-verifier": [64, 16],
    "seconds": 60.0,
    "large": 10_000,
    "large-seconds": 20.0,
    "probes": 8,
}
WARM_UP = 2.0  # seconds before a measurement
MEASURED = {1: 24.0, 16: 6.0}  # seconds of a measurement, by drafters
_SHOWN = 16  # modules of the profile


class _Recorded(Recorded, Ours):
    """A drafter with all mechanisms on, which is recorded."""


def main() -> None:
    options = options_of(__doc__, FLAGS)
    collect_seldom()
    report = Report("simulator_speed", options)
    for rtt in options.rtts:
        for clients in options.clients:
            _one_verifier(report, Setting(TARGET_25, DRAFTER_8, rtt / 1e3), clients)
    for each in options.per_verifier:
        _fleet(report, options.fleet, each, options.seconds, options.probes)
        _profile(report, options.fleet, each, options.seconds / 6, options.probes)
    _fleet(report, options.large, options.per_verifier[0], options.large_seconds, options.probes)
    report.save()


# One verifier.


def _one_verifier(report: Report, setting: Setting, clients: int) -> None:
    seconds = MEASURED.get(clients, 4.0)
    world, _ = virtual_world(setting, clients)
    real = [_Recorded(world, KnownOutput(number), setting, f"session-{number}") for number in range(clients)]
    start_all(world, real)
    began = time.process_time()
    table = fit(world, real, WARM_UP, seconds)
    real_cpu = time.process_time() - began
    _by_table(setting, clients, table, 0.0)  # computes the target's texts
    began = time.process_time()
    found = _by_table(setting, clients, table, seconds)
    cpu, minutes = time.process_time() - began, clients * (WARM_UP + seconds) / 60
    metrics = Metrics.of([each.course.times for each in real], WARM_UP, WARM_UP + seconds)
    off = found.rate / metrics.rate, found.p50 / metrics.p50, found.p95 / metrics.p95
    rate, p50, p95 = (each - 1.0 for each in off)
    report.line(
        f"rtt {1e3 * setting.rtt:4.1f} ms, {clients:2} drafters: CPU s a drafter-minute {real_cpu / minutes:.2f} with "
        f"the controller, {cpu / minutes:.3f} by table; off by: tokens/s {rate:+.1%}, p50 {p50:+.1%}, p95 {p95:+.1%}"
    )


def _by_table(setting: Setting, clients: int, table: Table, seconds: float) -> Metrics:
    world, _ = virtual_world(setting, clients)
    crowd = [_table_drafter(world, number, table, setting.rtt) for number in range(clients)]
    start_all(world, crowd)
    world.run(until=WARM_UP + seconds)
    return Metrics.of([each.course.times for each in crowd], WARM_UP if seconds else 0.0, WARM_UP + seconds)


def _table_drafter(world: World, number: int, table: Table, rtt: float) -> TableDrafter:
    text, name = KnownOutput(number), f"session-{number}"
    return TableDrafter(world, session_of(name, text), text.draft, table, Network(rtt), seed=f"0/{name}")


# A fleet.


class _Observed:
    """Gathers the error of the tables, and counts."""

    def __init__(self) -> None:
        self.fidelity, self.requests, self.tokens = Fidelity(begin=2 * WARM_UP), 0, 0

    def record(self, record: Record) -> None:
        self.fidelity.add(record)
        self.requests += 1
        self.tokens += len(record.times)

    def sample(self, samples: Sequence[Sample]) -> None:
        pass


def _conversations() -> Iterator[Conversation]:
    """Of one turn each: prompts of 64 to 192 tokens, answers of 50 to 200. The first ones begin within two seconds."""
    rng, number = random.Random(0), 0
    while True:
        number += 1
        turn = Turn(rng.randrange(64, 193), rng.randrange(50, 201), rng.uniform(0.0, WARM_UP))
        yield Conversation(str(number), 0.0, (turn,))


def _made(drafters: int, per_verifier: int, probes: int) -> tuple[Fleet, _Observed]:
    kind = VerifierKind(LinearCost(25.0, 0.5, 0.2), slots=per_verifier)
    verifiers = {str(number): kind for number in range(-(-drafters // per_verifier))}
    device = DeviceKind(Network(0.02), Mode.REMOTE, LinearCost(8.0, 1.2, 0.1))
    observed = _Observed()
    return Fleet(
        FleetSetting(verifiers, (device,), probes=probes, users=drafters), _conversations(), observed
    ), observed


def _fleet(report: Report, drafters: int, per_verifier: int, seconds: float, probes: int) -> None:
    fleet, observed = _made(drafters, per_verifier, probes)
    began, peaks, spent = time.process_time(), [], []
    for quarter in (0.25, 0.5, 0.75, 1.0):
        fleet.loop.run(quarter * seconds)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        spent.append(time.process_time() - began)
    cpu, events = spent[-1], fleet.loop.events
    report.line(
        f"fleet of {drafters:,} drafters, {per_verifier} a verifier, {seconds:.0f} s simulated in {cpu:.1f} CPU s: "
        f"{60 * cpu / drafters / seconds:.3f} a drafter-minute, {events:,} events, {events / cpu:,.0f} a second, "
        f"{1e6 * cpu / events:.0f} us each; {observed.requests:,} requests, {observed.tokens:,} tokens",
        f"    by quarters: {' '.join(f'{each:.1f}' for each in spent)} CPU s, "
        f"{' '.join(f'{each:.0f}' for each in peaks)} MiB",
        f"    {observed.fidelity.line()}",
    )


def _profile(report: Report, drafters: int, per_verifier: int, seconds: float, probes: int) -> None:
    fleet, _ = _made(drafters, per_verifier, probes)
    fleet.loop.run(WARM_UP)
    profile = cProfile.Profile()
    profile.runcall(fleet.loop.run, WARM_UP + seconds)
    own: Counter[str] = Counter()
    for (file, _line, _name), (_, _, own_time, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        path = Path(file)
        inside = path.is_relative_to(ROOT) and ".venv" not in path.parts
        own[str(path.relative_to(ROOT)) if inside else "Python and libraries"] += own_time
    report.line(f"    profile of {seconds:.0f} s behind the first {WARM_UP:.0f}: share of the time, by module")
    report.line(*(f"        {each / own.total():6.1%} {module}" for module, each in own.most_common(_SHOWN)))


if __name__ == "__main__":
    main()
