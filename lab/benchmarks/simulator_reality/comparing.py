"""What users see of real and simulated runs, how far the two are apart, and whether that is within the bars."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from statistics import fmean

from lab.simulator.fleet.record import Record
from specpair.numbers import quantile

BARS = {"throughput": 0.04, "ttft_p50": 0.1, "ttft_p95": 0.1, "round_p50": 0.1, "round_p95": 0.1}
_NAMES = {
    "throughput": "tokens/s",
    "ttft_p50": "first token, p50, ms",
    "ttft_p95": "first token, p95, ms",
    "round_p50": "round, p50, ms",
    "round_p95": "round, p95, ms",
}
HEAD = f"{'':22}{'measured':>10}{'simulated':>11}{'difference':>12}{'bar':>7}   of each run"

_TOGETHER = 2e-3  # seconds: tokens that come so soon one after the other are seen at once


@dataclass(frozen=True, slots=True)
class Measures:
    """Times in milliseconds."""

    throughput: float  # tokens a second
    ttft_p50: float
    ttft_p95: float
    round_p50: float  # between two arrivals of tokens
    round_p95: float
    texts: float  # whose first token came in the window
    rounds: float


def measured(records: Iterable[Record], start: float, end: float, slow: float) -> Measures:
    """What came from `start` to `end` (s). `slow`: times are divided by it, so that they are those that were meant."""
    tokens, ttft, rounds = 0, list[float](), list[float]()
    for record in records:
        tokens += sum(start <= time < end for time in record.times)
        if record.times and start <= record.times[0] < end:
            ttft.append(record.times[0] - record.sent)
        rounds += [after - before for before, after in pairwise(_chunks(record.times)) if start <= after < end]
    scale = 1e3 / slow
    return Measures(
        throughput=tokens / (end - start) * slow,
        ttft_p50=scale * quantile(ttft, 0.5),
        ttft_p95=scale * quantile(ttft, 0.95),
        round_p50=scale * quantile(rounds, 0.5),
        round_p95=scale * quantile(rounds, 0.95),
        texts=len(ttft),
        rounds=len(rounds),
    )


def mean(of: Sequence[Measures]) -> Measures:
    """The means of each measure."""
    return Measures(**{each.name: fmean(getattr(one, each.name) for one in of) for each in fields(Measures)})


def _chunks(times: list[float]) -> list[float]:
    """When tokens came, those that came together once."""
    seen: list[float] = []
    for time in times:
        if not seen or time - seen[-1] > _TOGETHER:
            seen.append(time)
    return seen


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
