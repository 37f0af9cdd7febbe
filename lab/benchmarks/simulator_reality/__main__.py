"""Real fleets beside their simulations, each from one configuration file.

A file in `configurations/` is a fleet as `specpair simulator run` takes it. It runs for real: verifiers with the
real scheduler, the router in front of several of them, a relay that plays the link, and a process for each drafter,
whose draft model agrees with the target where the simulated one does. Passes and draft steps sleep as long as they
cost. Then it is simulated with the same seeds; what the programs themselves take, which `--overheads` measures, is
added to its costs. Tiny differences decide who shares a pass with whom, and neither a link's delays nor a router's ties
have a seed in reality. So what is simulated is a mean of five: the exchange of a request and its reply takes 0.9 to 1.1
times as long as measured, and these are drawn anew.

So that some forty processes disturb each other little on two cores, all times of a configuration are multiplied, and
what is shown is divided again. A real run is void if its passes and draft steps took 3 % longer than they cost.

Of each configuration: tokens a second, the time to the first token, and the time of a round (between two arrivals of
tokens), behind the burn-in. Differences are of the means over `--replications`, "of each run" in percent.

`--kept` takes real runs that earlier calls have left in .cache/ where there are any. `--overheads` measures what the
programs themselves take, and compares nothing.

python -m lab.benchmarks.simulator_reality [--cases one_remote eight_lockstep …] [--replications N] [--kept] [--save]
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.benchmarks.harness.report import UNSAVED, Report, options_of
from lab.benchmarks.simulator_reality import conductor, overheads
from lab.benchmarks.simulator_reality.cases import CASES, FOLDER, Case, records_of
from lab.benchmarks.simulator_reality.comparing import HEAD, rows, verdict
from lab.benchmarks.simulator_reality.measures import Measures
from lab.simulator.configuration.reading import read
from lab.simulator.simulation import seed_of

FLAGS = {"cases": [*CASES], "replications": 1, "kept": False, "overheads": False}
_KEPT = UNSAVED.parent / "simulator_reality"
_TRIES = 3  # of a run that is void


@dataclass(frozen=True, slots=True)
class Run:
    """A real run."""

    measures: Measures
    lateness: float  # mean time of passes and draft steps, as a multiple of their cost
    void: bool


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("simulator_reality", options, "simulator_reality_overheads" if options.overheads else None)
    if options.overheads:
        for name, value in overheads.found(_longer).items():
            report.line(f"{name:14}{value:6.2f} ms; the simulation adds {getattr(overheads, name):.2f}")
    else:
        _compare(options.cases, options.replications, options.kept, report)
    report.save()


def _compare(names: list[str], replications: int, kept: bool, report: Report) -> None:
    blind: dict[str, bool] = {}
    within: dict[str, bool] = {}
    for name in names:
        case = Case.named(name)
        runs = [_real(case, replication, kept) for replication in range(replications)]
        found = rows([run.measures for run in runs], [case.simulated(each) for each in range(replications)])
        void = any(run.void for run in runs)
        blind[name], within[name] = case.blind, not void and all(row.within for row in found)
        report.line(
            f"\n{name}: {'not looked at before' if case.blind else 'seen in building'}{'  VOID' if void else ''}"
        )
        texts, rounds = (sum(getattr(run.measures, what) for run in runs) for what in ("texts", "rounds"))
        lateness = max(run.lateness for run in runs)
        slow = f"{case.slow:g} times as slow"
        report.line(f"  {slow}; {texts} texts, {rounds} rounds; passes took {lateness:.3f} times their cost")
        report.line(HEAD, *(row.line for row in found))
    report.line(f"\n{verdict(blind, within)}")


def _real(case: Case, replication: int, kept: bool) -> Run:
    """A real run, or with `kept` the one that an earlier call has left."""
    file = _KEPT / f"{case.name}-{replication}.json"
    if kept and file.exists():
        given = json.loads(file.read_text())
        return Run(Measures(**given.pop("measures")), **given)
    for _ in range(_TRIES):
        real = conductor.run(case.configuration, case.seed(replication))
        run = Run(case.measured(real.records), real.lateness, real.void)
        print(f"{case.name}, run {replication}: {run}", file=sys.stderr, flush=True)
        if not run.void:
            break
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(run)))
    return run


def _longer(keys: list[str]) -> list[float]:
    configuration = read(Path(FOLDER / "overhead.yaml"), keys)
    seed = seed_of(configuration, 0)
    real = conductor.run(configuration, seed)
    median = overheads.quartiles(records_of(configuration, seed))[1]
    return [each - median for each in overheads.quartiles(real.records)]


if __name__ == "__main__":
    main()
