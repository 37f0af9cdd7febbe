"""What verifiers did between samples of them, and how figures went over simulated time, in equal parts of it."""

import math
from bisect import bisect_left
from dataclasses import astuple, dataclass, field

from lab.simulator.configuration.keys import MS
from lab.simulator.fleet.record import Record, Sample, Status
from lab.simulator.results.requests import Decision, percentile, share

_MOST = 60  # intervals
_LEAST_SECONDS = 2.0  # of an interval: shorter ones have so few tokens and requests that their figures are noise
_FEWEST = 12  # intervals, however short the run is


@dataclass(slots=True)
class VerifierLoad:
    """What a verifier did, or several. Sums over samples are means times their number."""

    up: float = 0.0  # seconds that it was there
    busy: float = 0.0  # seconds of passes
    passes: int = 0
    rows: int = 0
    tokens: int = 0
    samples: int = 0  # in which it was there
    waiting: int = 0  # requests, over samples
    held: int = 0  # slots, over samples
    slots: int = 0  # over samples

    @classmethod
    def between(cls, last: Sample, now: Sample) -> "VerifierLoad":
        """Of a verifier between two samples."""
        return cls(
            up=now.at - last.at if now.up else 0.0,
            busy=now.busy - last.busy,
            passes=now.passes - last.passes,
            rows=now.rows - last.rows,
            tokens=now.tokens - last.tokens,
            samples=int(now.up),
            waiting=now.waiting,
            held=now.held,
            slots=now.slots if now.up else 0,
        )

    def __add__(self, other: "VerifierLoad") -> "VerifierLoad":
        return VerifierLoad(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def measures(self) -> dict[str, float]:
        """Those of MEASURES that verifiers have."""
        return {
            # A pass is counted as a whole when it begins.
            "utilisation": min(share(self.busy, self.up), 1.0) if self.up else math.nan,
            "occupancy": share(self.rows, self.passes),
            "tokens_per_pass": share(self.tokens, self.passes),
            "queue_depth": share(self.waiting, self.samples),
            "slots_held": share(self.held, self.slots),
        }


def intervals_of(seconds: float) -> int:
    """In how many intervals a run of so many simulated seconds is shown."""
    return min(max(math.floor(seconds / _LEAST_SECONDS), _FEWEST), _MOST)


@dataclass(slots=True)
class _Interval:
    tokens: int = 0
    ttft: list[float] = field(default_factory=list)  # of the first tokens that came in it, in seconds
    tpot: list[float] = field(default_factory=list)  # of the requests that became whole in it, in seconds
    decided: int = 0
    kept: int = 0
    load: VerifierLoad = field(default_factory=VerifierLoad)


class Series:
    """Figures of each interval of the simulated time, the burn-in included."""

    def __init__(self, seconds: float) -> None:
        self._intervals = [_Interval() for _ in range(intervals_of(seconds))]
        self._width = seconds / len(self._intervals)

    def record(self, record: Record, decision: Decision | None) -> None:
        """Count a request. Each figure counts where it became known: at the end, many requests are under way."""
        times, begin, last = record.times, 0, len(self._intervals) - 1
        while begin < len(times):
            number = self._number(times[begin])
            end = bisect_left(times, (number + 1) * self._width, begin + 1) if number < last else len(times)
            self._intervals[number].tokens += end - begin
            begin = end
        if times:
            self._at(record.first).ttft.append(record.ttft)
        if record.status is Status.WHOLE and len(times) > 1:
            self._at(record.end).tpot.append(record.tpot)
        if decision is not None:
            interval = self._at(decision.at)
            interval.decided += 1
            interval.kept += decision.kept

    def add(self, at: float, load: VerifierLoad) -> None:
        """Count what a verifier did until `at`, since the sample before."""
        self._at(at).load += load

    def _number(self, at: float) -> int:
        return min(int(at / self._width), len(self._intervals) - 1)

    def _at(self, at: float) -> _Interval:
        return self._intervals[self._number(at)]

    def values(self, end: float) -> dict[str, list[float]]:
        """For each of the measures here, a value of each interval; not a number, where there is none.

        `end`: seconds that were simulated.
        """
        found: dict[str, list[float]] = {}
        for number, each in enumerate(self._intervals):
            values = {
                "throughput_tps": share(each.tokens, min(max(end - number * self._width, 0.0), self._width)),
                "ttft_p95_ms": percentile(each.ttft, 0.95) / MS,
                "tpot_p95_ms": percentile(each.tpot, 0.95) / MS,
                "slo_attainment": share(each.kept, each.decided),
                **each.load.measures(),
            }
            for name, value in values.items():
                found.setdefault(name, []).append(value)
        return found
