"""Throughput over the number of drafters: in steps with DSD-Sim's server, and without them."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from gateway.balancing.policies import Jsq
from lab.benchmarks.harness.report import Report
from lab.benchmarks.simulator_findings.window_server import Windowed, run
from lab.simulator.costs.cost import SequencePass
from lab.simulator.costs.linear import LinearCost
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.settings import DeviceKind, FleetSetting, Mode, VerifierKind
from lab.simulator.theory.intervals import Interval, of_independent
from lab.simulator.theory.reduced import Ended
from lab.simulator.virtual.agreement import constant
from lab.simulator.virtual.network import Network
from lab.simulator.workload.conversation import Conversation, Turn

_LOSES = Windowed(loses=True)
_DRAFTERS = (1, 5, 10, 20, 30, 40, 44, 48, 50, 51, 52, 53, 54, 55, 56, 58, 60, 70, 80, 100)
_RUNS = 10
_OWN_RUNS = 5  # of our scheduler, which take longer
_CHUNKS = (128, 512)  # prompt tokens in a pass, at most: the default, and as many as the engine takes at once


@dataclass(frozen=True, slots=True)
class _PassOfTheirs:
    """37 ms, and 50 ms with a prompt, however many texts share it."""

    def seconds(self, sequences: Sequence[SequencePass]) -> float:
        return 0.050 if any(held == 0 for _, held in sequences) else 0.037


def steps(report: Report, seconds: float) -> dict[str, list[tuple[int, Interval]]]:
    """Tokens a second by the number of drafters, for each experiment."""
    until = 1e3 * seconds
    found: dict[str, list[tuple[int, Interval]]] = {}
    cases = {
        "a job is lost": _LOSES,
        "no job is lost": replace(_LOSES, loses=False),
        "links differ by 0.01 ms": replace(_LOSES, unevenness=0.01),
    }
    report.line(
        "",
        "tokens/s with 95 % intervals, jobs a batch of 8, stuck drafters, by the number of drafters; means of",
        f"{_RUNS} runs, and of {_OWN_RUNS} with our scheduler, for prompts in chunks of 128 and of 512",
        "  drafters   " + "   ".join(f"{name:>25}" for name in [*cases, "our scheduler"]),
    )
    for drafters in _DRAFTERS:
        told = []
        for name, case in cases.items():
            runs = [run(case, drafters, until, seed) for seed in range(_RUNS)]
            tokens = of_independent([each.tokens for each in runs])
            found.setdefault(name, []).append((drafters, tokens))
            rows, stuck = fmean(each.rows for each in runs), fmean(each.stuck for each in runs)
            told.append(f"{_said(tokens)} {rows:6.2f} {stuck:7.1f}")
        for chunk in _CHUNKS:
            ours = of_independent([_ours(drafters, min(seconds, 6.0), chunk, seed) for seed in range(_OWN_RUNS)])
            found.setdefault(f"our scheduler, chunks of {chunk}", []).append((drafters, ours))
            told.append(_said(ours))
        report.line(f"  {drafters:8}   " + "   ".join(told))
    report.line(
        "",
        "drafters from which batches are full: by the formula; with lost jobs, the mean of runs with its interval; "
        "stuck",
        "drafters of nine tenths of the formula's number",
    )
    for name, case in (
        ("batch of 4", replace(_LOSES, batch=4)),
        ("batch of 8", _LOSES),
        ("batch of 16", replace(_LOSES, batch=16)),
        ("links of 40 ms", replace(_LOSES, link=40.0)),
        ("window of 5 ms", replace(_LOSES, window=5.0)),
    ):
        fewer = round(0.9 * case.full_from())
        stuck = fmean(run(case, fewer, until, seed).stuck for seed in range(_RUNS))
        report.line(f"  {name:15} {case.full_from():6.1f}  {_jumps(case, until)!s:>11}  {stuck:4.1f} of {fewer}")
    return found


def _said(tokens: Interval) -> str:
    return f"{tokens.mean:5.0f} ± {tokens.half:2.0f}"


def _jumps(case: Windowed, until: float) -> Interval:
    """The fewest drafters with which batches are nine tenths full, and with all larger numbers up to 1.6 times those of
    the formula."""
    most = round(1.6 * case.full_from())

    def jump(seed: int) -> int:
        emptier = (each for each in range(most, 1, -1) if run(case, each, until, seed).rows < 0.9 * case.batch)
        return next(emptier, 1) + 1

    return of_independent([jump(seed) for seed in range(_RUNS)])


def _ours(drafters: int, seconds: float, chunk: int, seed: int) -> float:
    """Accepted tokens a second of the same devices and passes with our scheduler, which has no cap of 8 jobs."""
    rng = random.Random(f"{drafters}/{seed}")
    verifier = VerifierKind(_PassOfTheirs(), slots=128, prefill_chunk=chunk)
    device = DeviceKind(Network(0.040), Mode.LOCKSTEP, LinearCost(6.0, 0.0, 0.0), 4, agreement=constant(0.85))

    def conversations() -> Iterator[Conversation]:
        number = 0
        while True:
            yield Conversation(str(number), 0.0, (Turn(100, 19, rng.expovariate(10.0)),))
            number += 1

    setting = FleetSetting({"a": verifier, "b": verifier}, (device,), Jsq, 0.0, users=drafters, seed=seed)
    records = Ended()
    Fleet(setting, conversations(), records).run(until=seconds)
    return sum(each.accepted for each in records if each.end > 1.0) / (seconds - 1.0)
