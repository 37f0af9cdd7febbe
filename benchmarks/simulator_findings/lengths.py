"""The draft length: fixed, adapted as others do, and as ours does."""

from collections.abc import Callable
from statistics import fmean

from benchmarks.harness.report import Report
from simulator.costs.linear import LinearCost
from simulator.drafting.lengths import LengthPolicy
from simulator.drafting.policies import AcceptanceBackoff, LatencyBackoff, SpecDecPlusPlus
from simulator.fleet.settings import DeviceKind, FleetSetting, Mode, VerifierKind
from simulator.theory.reduced import ended
from simulator.virtual.agreement import constant
from simulator.virtual.network import Network
from simulator.workload.conversation import Conversation, Turn
from specpair.balancing.policies import Hash

LENGTHS: dict[str, int | Callable[[], LengthPolicy] | None] = {
    "2": 2,
    "4": 4,
    "8": 8,
    "SpecDec++": SpecDecPlusPlus,
    "by acceptance": AcceptanceBackoff,
    "by latency": LatencyBackoff,
    "ours": None,
}
_TARGET, _DRAFTER = LinearCost(25.0, 0.5, 0.2), LinearCost(8.0, 1.2, 0.1)


def lengths(report: Report, output: int) -> dict[tuple[int, float, float], dict[str, float]]:
    """Tokens per second of a text by (texts at once, RTT, agreement) and draft length."""
    found: dict[tuple[int, float, float], dict[str, float]] = {}
    report.line(
        "", f"tokens/s of a text of {output}; pass 25 + 0.5 n ms, draft step 8 ms, in lockstep; ours as shipped"
    )
    report.line("  texts   RTT  agreement " + " ".join(f"{name:>13}" for name in [*LENGTHS, "as shipped"]))
    for clients in (1, 16):
        for rtt in (0.010, 0.040, 0.100):
            for agreement in (0.6, 0.85):
                rates = {name: _rate(clients, rtt, agreement, length, output) for name, length in LENGTHS.items()}
                rates["as shipped"] = _rate(clients, rtt, agreement, None, output, Mode.REMOTE)
                found[clients, rtt, agreement] = rates
                said = " ".join(f"{each:13.1f}" for each in rates.values())
                report.line(f"  {clients:5}  {1e3 * rtt:4.0f}  {agreement:9.2f} {said}")
    return found


def _rate(
    clients: int,
    rtt: float,
    agreement: float,
    length: int | Callable[[], LengthPolicy] | None,
    output: int,
    mode: Mode = Mode.LOCKSTEP,
) -> float:
    device = DeviceKind(Network(rtt), mode, _DRAFTER, length, agreement=constant(agreement))
    setting = FleetSetting({"a": VerifierKind(_TARGET)}, (device,), Hash)
    records = ended(setting, (Conversation(f"c{each}", 0.01 * each, (Turn(16, output),)) for each in range(clients)))
    return fmean((len(each.times) - 1) / (each.end - each.first) for each in records)
