"""The draft length: fixed, adapted as others do, and as ours does."""

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

from gateway.balancing.policies import Hash
from lab.benchmarks.harness.report import Report
from lab.simulator.costs.linear import LinearCost
from lab.simulator.drafting.lengths import LengthPolicy
from lab.simulator.drafting.policies import AcceptanceBackoff, LatencyBackoff, SpecDecPlusPlus
from lab.simulator.fleet.settings import DeviceKind, FleetSetting, Mode, VerifierKind
from lab.simulator.theory.intervals import of_independent
from lab.simulator.theory.reduced import ended
from lab.simulator.virtual.agreement import constant
from lab.simulator.virtual.network import Network
from lab.simulator.workload.conversation import Conversation, Turn

LENGTHS: dict[str, int | Callable[[], LengthPolicy] | None] = {
    "2": 2,
    "4": 4,
    "8": 8,
    "SpecDec++": SpecDecPlusPlus,
    "by acceptance": AcceptanceBackoff,
    "by latency": LatencyBackoff,
    "ours": None,
}
FIXED = ("2", "4", "8")
_RUNS = {1: 40, 16: 5}  # by texts at once; run number `i` has the same chance for each length
_TARGET, _DRAFTER = LinearCost(25.0, 0.5, 0.2), LinearCost(8.0, 1.2, 0.1)


def lengths(report: Report, output: int) -> dict[tuple[int, float, float], dict[str, float]]:
    """Tokens per second of a text by (texts at once, RTT, agreement) and draft length."""
    found: dict[tuple[int, float, float], dict[str, list[float]]] = {}
    names = [*LENGTHS, "as shipped"]
    head = "  texts   RTT  agreement " + " ".join(f"{name:>13}" for name in names)
    report.line(
        "",
        f"tokens/s of a text of {output}; pass 25 + 0.5 n ms, draft step 8 ms, in lockstep; ours as shipped; means of",
        f"{_RUNS[1]} runs of one text, and of {_RUNS[16]} of 16 texts, with their 95 % intervals",
        head,
    )
    for clients in (1, 16):
        for rtt in (0.010, 0.040, 0.100):
            for agreement in (0.6, 0.85):
                rates = {name: _rates(clients, rtt, agreement, length, output) for name, length in LENGTHS.items()}
                rates["as shipped"] = _rates(clients, rtt, agreement, None, output, Mode.REMOTE)
                found[clients, rtt, agreement] = rates
                report.line(_row(clients, rtt, agreement, rates, ".1f"))
    report.line("", "the same over the best of 2, 4 and 8, by pairs of runs with the same chance", head)
    for at, rates in found.items():
        best = rates[max(FIXED, key=lambda name: fmean(rates[name]))]
        report.line(_row(*at, {name: [x / y for x, y in zip(rates[name], best, strict=True)] for name in names}, ".3f"))
    return {at: {name: fmean(each) for name, each in rates.items()} for at, rates in found.items()}


def _row(clients: int, rtt: float, agreement: float, runs: dict[str, list[float]], how: str) -> str:
    intervals = [of_independent(each) for each in runs.values()]
    said = " ".join(f"{f'{each.mean:{how}} ± {each.half:{how}}':>13}" for each in intervals)
    return f"  {clients:5}  {1e3 * rtt:4.0f}  {agreement:9.2f} {said}"


def _rates(
    clients: int,
    rtt: float,
    agreement: float,
    length: int | Callable[[], LengthPolicy] | None,
    output: int,
    mode: Mode = Mode.LOCKSTEP,
) -> list[float]:
    """Of each run, in the mean of its texts."""
    device = DeviceKind(Network(rtt), mode, _DRAFTER, length, agreement=constant(agreement))
    setting = FleetSetting({"a": VerifierKind(_TARGET)}, (device,), Hash)

    def run(seed: int) -> float:
        texts = (Conversation(f"c{each}", 0.01 * each, (Turn(16, output),)) for each in range(clients))
        records = ended(replace(setting, seed=seed), texts)
        return fmean((len(each.times) - 1) / (each.end - each.first) for each in records)

    return [run(seed) for seed in range(_RUNS[clients])]
