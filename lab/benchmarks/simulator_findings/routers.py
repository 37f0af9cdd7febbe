"""Unlike verifiers, and the routers that know more or less of them."""

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

from gateway.balancing.policies import KNOWN
from lab.benchmarks.harness.report import Report
from lab.simulator.costs.linear import LinearCost
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.settings import DeviceKind, FleetSetting, Mode, VerifierKind
from lab.simulator.theory.intervals import Interval, of_independent
from lab.simulator.theory.reduced import Ended
from lab.simulator.workload.conversation import Conversation, Turn

_NAMES = ("random", "round_robin", "jsq2", "wjsq2", "jsq", "jiq", "semi_clairvoyant", "least_queue_time")
_OUTPUT = 8  # tokens of a text, in as many passes
_USERS = 50
_RUNS = 5
# Texts a second of each verifier. The sum and the slowest are those of DSD-Sim's plateaus; the rest is assumed.
_THREE = (63.0, 46.2, 15.8)
_NINE = (75.0, 58.0, 45.0, 38.0, 28.0, 22.0, 18.0, 12.0, 8.5)


def routers(report: Report, seconds: float) -> dict[str, dict[str, float]]:
    """Texts a second by experiment and policy."""
    found: dict[str, dict[str, float]] = {}
    halved = (*_THREE[:2], _THREE[2] / 2)
    for name, rates, batches in (
        ("three, one text a pass", _THREE, False),
        ("three, the slowest halved", halved, False),
        ("nine, one text a pass", _NINE, False),
        ("three that batch", _THREE, True),
        ("nine that batch", _NINE, True),
    ):
        report.line(
            "",
            f"{name}: {' '.join(f'{each:g}' for each in rates)} texts/s alone; means of {_RUNS} runs, 95 % intervals",
        )
        if not batches:
            report.line(
                f"  predicted: {sum(rates):.1f} where all are busy, {len(rates) * min(rates):.1f} by equal shares"
            )
        found[name] = {}
        for policy in _NAMES:
            rate, p95, shares = _runs(policy, rates, batches, seconds / 4 if batches else 2 * seconds)
            found[name][policy] = rate.mean
            said = " ".join(f"{each:.2f}" for each in shares)
            report.line(f"  {policy:17} {_said(rate, p95)}, shares {said}")
        if not batches:
            rate, p95, _ = _runs("wjsq2", rates, batches, 2 * seconds, weighted=False)
            report.line(f"  {'wjsq2, no weights':17} {_said(rate, p95)}")
    return found


def _said(rate: Interval, p95: Interval) -> str:
    return f"{rate.mean:6.1f} ± {rate.half:4.1f} texts/s, p95 {1e3 * p95.mean:5.0f} ± {1e3 * p95.half:3.0f} ms"


def _runs(
    policy: str, rates: tuple[float, ...], batches: bool, seconds: float, weighted: bool = True
) -> tuple[Interval, Interval, list[float]]:
    """Texts a second, the 95th percentile of their times in seconds, and the verifiers' shares, of runs that differ in
    chance alone."""
    runs = [_run(policy, rates, batches, seconds, weighted, seed) for seed in range(1, _RUNS + 1)]
    shares = [fmean(each) for each in zip(*(shares for *_, shares in runs), strict=True)]
    return of_independent([rate for rate, *_ in runs]), of_independent([p95 for _, p95, _ in runs]), shares


def _run(
    policy: str, rates: tuple[float, ...], batches: bool, seconds: float, weighted: bool, seed: int
) -> tuple[float, float, list[float]]:
    """The same of one run."""

    def kind(rate: float) -> VerifierKind:
        takes = 1e3 / ((_OUTPUT + 1) * rate)  # milliseconds of a token; the prompt is one more than an answer's pass
        cost = LinearCost(takes, 0.1 * takes if batches else takes, 0.0)
        return VerifierKind(cost, slots=128, weight=rate if weighted else 1.0, prefill_chunk=1_000_000)

    def conversations() -> Iterator[Conversation]:
        number = 0
        while True:
            yield Conversation(f"{seed}-{number}", 0.0, (Turn(1, _OUTPUT),))
            number += 1

    kinds = {f"{number}": kind(rate) for number, rate in enumerate(rates)}
    users = 4 * _USERS if batches else _USERS
    setting = FleetSetting(kinds, (DeviceKind(mode=Mode.TARGET),), KNOWN[policy], look_every=0.0, users=users)
    records = Ended()
    Fleet(replace(setting, seed=seed), conversations(), records).run(until=seconds)
    kept = [each for each in records if each.end > 0.2 * seconds]
    times = sorted(each.end - each.sent for each in kept)
    shares = [sum(each.nodes == [name] for each in kept) / len(kept) for name in kinds]
    return len(kept) / (0.8 * seconds), times[int(0.95 * len(times))], shares
