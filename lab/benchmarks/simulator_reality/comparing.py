"""How far simulations are from real runs, and whether that is within the bars. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from lab.benchmarks.simulator_reality.measures import Measures

BARS = {"throughput": 0.04, "ttft_p50": 0.1, "ttft_p95": 0.1, "round_p50": 0.1, "round_p95": 0.1}
_NAMES = {
    "throughput": "tokens/s",
    "ttft_p50": "first token, p50, ms",
    "ttft_p95": "first token, p95, ms",
    "round_p50": "round, p50, ms",
    "round_p95": "round, p95, ms",
}
HEAD = f"{'':22}{'measured':>10}{'simulated':>11}{'difference':>12}{'bar':>7}   of each run"


@dataclass(frozen=True, slots=True)
class Row:
    """One measure. `real`, `simulated`: of each replication, at least one."""

    measure: str  # one of `BARS`
    real: Sequence[float]
    simulated: Sequence[float]

    @property
    def difference(self) -> float:
        """By how much the simulation's mean is above the real one's, as a share of that."""
        return fmean(self.simulated) / fmean(self.real) - 1.0

    @property
    def within(self) -> bool:
        """Whether the difference is within its bar."""
        return abs(self.difference) <= BARS[self.measure]

    @property
    def line(self) -> str:
        pairs = zip(self.real, self.simulated, strict=True)
        each = " ".join(f"{100 * (there / here - 1):+.1f}" for here, there in pairs)
        shown = f"{fmean(self.real):10.2f}{fmean(self.simulated):11.2f}{100 * self.difference:+10.1f} %"
        missed = "" if self.within else "  MISSED"
        return f"  {_NAMES[self.measure]:20}{shown}{100 * BARS[self.measure]:5.0f} %   {each}{missed}"


def rows(real: Sequence[Measures], simulated: Sequence[Measures]) -> list[Row]:
    """All measures of a configuration. `real`, `simulated`: of each replication."""
    return [
        Row(name, [getattr(each, name) for each in real], [getattr(each, name) for each in simulated]) for name in BARS
    ]


def verdict(blind: dict[str, bool], within: dict[str, bool]) -> str:
    """How many configurations are within all bars. `blind`, `within`: by configuration."""

    def told(of: list[str]) -> str:
        return f"{sum(within[name] for name in of)} of {len(of)}"

    held_out = [name for name in within if blind[name]]
    return f"within all bars: {told([*within])} configurations; of those that were not looked at, {told(held_out)}"
