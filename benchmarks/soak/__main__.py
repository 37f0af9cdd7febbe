"""Runs a soak: many drafters that connect, crash, stall and return, for minutes. See `benchmarks.soak.run`.

python -m benchmarks.soak [--seconds 300] [--drafters 64] [--seed 0]
"""

from statistics import median

from benchmarks.harness.report import Report, options_of, plot
from benchmarks.soak.run import GROWTH, SETTLED, Outcome, soak


def main() -> None:
    options = options_of(__doc__, {"seconds": 300.0, "drafters": 64, "seed": 0}, "matplotlib")
    report = Report("soak", options)
    outcome = soak(options.seconds, options.drafters, options.seed)
    well = _tell(report, outcome)
    report.save()
    times = [sample.at for sample in outcome.samples]
    with plot(report.beside(".png"), columns=2) as [[memory, held]]:
        memory.plot(times, [sample.memory for sample in outcome.samples])
        memory.set(title="resident memory of the verifier", xlabel="s", ylabel="MiB", ylim=(0, None))
        for name in ("sessions", "sequences", "slots", "waiting"):
            held.plot(times, [sample.held[name] for sample in outcome.samples], label=name)
        held.set(title="what it holds", xlabel="s", ylim=(0, None))
        held.legend()
    if not well:
        raise SystemExit(1)


def _tell(report: Report, outcome: Outcome) -> bool:
    """Report what happened; whether the run passed."""
    tally, samples, rest = outcome.tally, outcome.samples, outcome.rest
    assert rest is not None
    report.line("happened: " + ", ".join(f"{name} {count}" for name, count in sorted(tally.happened.items())))
    report.line(f"{tally.requests} requests, {tally.tokens} tokens compared, slowest response {tally.slowest:.2f} s")
    most = {name: max(sample.held[name] for sample in samples) for name in ("sessions", "slots")}
    report.line(
        f"{rest.held['passes']} passes, bookkeeping checked {rest.held['checks']} times, "
        f"at most {most['sessions']} sessions on {most['slots']} slots"
    )
    columns = ("sessions", "slots", "waiting", "blocks")
    report.line(f"{'s':>6} {'MiB':>7} {'files':>8} " + " ".join(f"{name:>8}" for name in columns))
    for each in [*samples[:: max(1, len(samples) // 30)], rest]:
        held = " ".join(f"{each.held[name]:8}" for name in columns)
        report.line(f"{each.at:6.1f} {each.memory:7.1f} {each.files:8} {held}")
    second, last = outcome.quarters()
    requests = median(sample.requests for sample in last) - median(sample.requests for sample in second)
    flat, settled = outcome.growth <= GROWTH, second[0].at > 0.95 * SETTLED
    judged = ("flat" if flat else "GROWS") if settled else "too short a run to judge"
    report.line(
        f"memory, median of the last quarter less that of the second: {outcome.growth:+.2f} MiB over {requests:.0f} "
        f"requests, {judged} (at most {GROWTH:g} MiB)"
    )
    for fault in tally.faults[:20]:
        report.line(f"FAULT {fault}")
    report.line(f"{len(tally.faults)} faults")
    return (flat or not settled) and not tally.faults


if __name__ == "__main__":
    main()
