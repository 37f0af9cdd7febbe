"""Compares real fleets with their simulations, each pair from one configuration.

A fleet of `configurations.yaml` runs for real: verifiers with the
real scheduler, the router in front of several of them, a relay that plays the link, and a process for each drafter,
whose draft model agrees with the target where the simulated one does. Passes and draft steps sleep as long as they
cost. Then it is simulated with the same seeds; what the programs themselves take is added to its costs. Tiny
differences decide who shares a pass with whom, and neither a link's delays nor a router's ties have a seed in reality.
So what is simulated is a mean of five: the exchange of a request and its reply takes 0.9 to 1.1 times as long as
measured, and these are drawn anew.

So that some forty processes disturb each other little on two cores, all times of a configuration are multiplied, and
what is shown is divided again. A real run is void if its passes and draft steps took 3 % longer than they cost.

Of each configuration: tokens a second, the time to the first token, and the time of a round (between two arrivals of
tokens), behind the burn-in. Differences are of the means over `--replications`, "of each run" in percent.

    python -m lab.benchmarks.simulator_reality [--cases one_remote eight_lockstep …] [--replications N] [--save]
"""

import sys

from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.simulator_reality import real_fleet
from lab.benchmarks.simulator_reality.simulated import CASES, HEAD, Case, rows, verdict

_TRIES = 3  # of a run that is void


def main() -> None:
    options = options_of(__doc__, {"cases": [*CASES], "replications": 1})
    report = Report("simulator_reality", options)
    blind: dict[str, bool] = {}
    within: dict[str, bool] = {}
    for name in options.cases:
        case = Case.named(name)
        runs = [_real(case, replication) for replication in range(options.replications)]
        real = [case.measured(run.records) for run in runs]
        found = rows(real, [case.simulated(replication) for replication in range(options.replications)])
        void = any(run.void for run in runs)
        blind[name], within[name] = case.blind, not void and all(row.within for row in found)
        report.line(f"\n{name}: {'held out' if case.blind else 'seen in building'}{'  VOID' if void else ''}")
        texts, rounds = (sum(getattr(each, what) for each in real) for what in ("texts", "rounds"))
        lateness = max(run.lateness for run in runs)
        slow = f"{case.slow:g} times as slow"
        report.line(f"  {slow}; {texts} texts, {rounds} rounds; passes took {lateness:.3f} times their cost")
        report.line(HEAD, *(row.line for row in found))
    report.line(f"\n{verdict(blind, within)}")
    report.save()


def _real(case: Case, replication: int) -> real_fleet.Real:
    """The first real run that holds, or the last of the tries."""
    for _ in range(_TRIES):
        run = real_fleet.run(case.configuration, case.seed(replication))
        print(f"{case.name}, run {replication}: {run.lateness:.3f} times the cost", file=sys.stderr, flush=True)
        if not run.void:
            break
    return run


if __name__ == "__main__":
    main()
