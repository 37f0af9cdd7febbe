"""How figures went over simulated time, in equal parts of it."""

import math
from bisect import bisect_left
from dataclasses import dataclass, field

from lab.simulator.fleet.record import Record, Status
from lab.simulator.results.histogram import Histogram
from lab.simulator.results.nodes import Node
from lab.simulator.results.requests import Decision, share

_MOST = 60  # parts
_LEAST_SECONDS = 2.0  # of a part: shorter ones have so few tokens and requests that their figures are noise
_FEWEST = 12  # parts, however short the run is


def parts_of(seconds: float) -> int:
    """In how many parts a run of so many simulated seconds is shown."""
    return min(max(math.floor(seconds / _LEAST_SECONDS), _FEWEST), _MOST)


@dataclass(slots=True)
class _Part:
    tokens: int = 0
    ttft: Histogram = field(default_factory=Histogram)  # of the first tokens that came in it
    tpot: Histogram = field(default_factory=Histogram)  # of the requests that became whole in it
    decided: int = 0
    kept: int = 0
    nodes: Node = field(default_factory=lambda: Node(""))


class Series:
    """Figures of each part of the simulated time, the burn-in included."""

    def __init__(self, seconds: float) -> None:
        self._parts = [_Part() for _ in range(parts_of(seconds))]
        self._width = seconds / len(self._parts)

    def record(self, record: Record, decision: Decision | None) -> None:
        """Count a request. Each figure counts where it became known: at the end, many requests are under way."""
        times, begin, last = record.times, 0, len(self._parts) - 1
        while begin < len(times):
            number = self._number(times[begin])
            end = bisect_left(times, (number + 1) * self._width, begin + 1) if number < last else len(times)
            self._parts[number].tokens += end - begin
            begin = end
        if times:
            self._parts[self._number(record.first)].ttft.add(record.ttft)
        if record.status is Status.WHOLE and len(times) > 1:
            self._parts[self._number(record.end)].tpot.add(record.tpot)
        if decision is not None:
            part = self._parts[self._number(decision.at)]
            part.decided += 1
            part.kept += decision.kept

    def step(self, at: float, step: Node) -> None:
        """Count what a verifier did until `at`, since the sample before."""
        self._parts[self._number(at)].nodes.add(step)

    def _number(self, at: float) -> int:
        return min(int(at / self._width), len(self._parts) - 1)

    def values(self, end: float) -> dict[str, list[float]]:
        """For each of the measures here, a value of each part; not a number, where there is none.

        `end`: seconds that were simulated.
        """
        found: dict[str, list[float]] = {}
        for number, part in enumerate(self._parts):
            values = {
                "throughput_tps": share(part.tokens, min(max(end - number * self._width, 0.0), self._width)),
                "ttft_p95_ms": 1e3 * part.ttft.quantiles(0.95)[0],
                "tpot_p95_ms": 1e3 * part.tpot.quantiles(0.95)[0],
                "slo_attainment": share(part.kept, part.decided),
                **part.nodes.measures(),
            }
            for name, value in values.items():
                found.setdefault(name, []).append(value)
        return found
