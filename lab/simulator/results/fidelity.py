"""How far drafters by table are off, in each run: their requests beside those of the probes, in the same seconds."""

import math
from dataclasses import dataclass, field

from lab.simulator.fleet.record import Record, Status
from lab.simulator.results.requests import Requests

COMPARED = ("tpot_p50_ms", "tpot_p95_ms", "round_p50_ms", "round_p95_ms", "tokens_per_round", "acceptance")


@dataclass(slots=True)
class _Mean:
    """A mean, with its standard error."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.squares += value**2

    @property
    def value(self) -> float:
        return self.total / self.count if self.count else math.nan

    @property
    def error(self) -> float:
        if self.count < 2:
            return math.nan
        variance = (self.squares - self.total**2 / self.count) / (self.count - 1)
        return math.sqrt(max(variance, 0.0) / self.count)


@dataclass(slots=True)
class Fidelity:
    """The requests of both kinds that were sent at `begin`, in seconds, or later. Memory does not grow with them."""

    begin: float = 0.0
    by_table: Requests = field(default_factory=Requests)
    probes: Requests = field(default_factory=Requests)
    _rates: dict[bool, _Mean] = field(default_factory=lambda: {True: _Mean(), False: _Mean()})

    def add(self, record: Record) -> None:
        """Count a request."""
        if record.by_table is None or record.sent < self.begin:
            return
        (self.by_table if record.by_table else self.probes).add(record)
        if record.status is Status.WHOLE and record.tpot:
            self._rates[record.by_table].add(1.0 / record.tpot)

    @property
    def count(self) -> int:
        """Requests of probes: the fewer, the less is known of the error."""
        return self._rates[False].count

    def errors(self) -> dict[str, float]:
        """What the table is off by, as shares of the probes' values; not a number where there is none.

        `tokens_per_second`: of a text, in the mean; the others are those of MEASURES with the same names.
        """
        table, probes = self.by_table.measures(), self.probes.measures()
        rates = self._rates[True].value, self._rates[False].value
        return {
            "tokens_per_second": rates[0] / rates[1] - 1.0,
            **{name: _off(table[name], probes[name]) for name in COMPARED},
        }

    def doubt(self) -> float:
        """Half the 95 % interval of the error in tokens per second: texts differ, and probes are few."""
        table, probes = self._rates[True], self._rates[False]
        return 1.96 * math.hypot(table.error / table.value, probes.error / probes.value)

    def line(self) -> str:
        """All in one line; "" where nothing ran by table."""
        if not self._rates[True].count:
            return ""
        errors = self.errors()
        speed = f"tokens/s of a text {errors.pop('tokens_per_second'):+.1%} (95 %: ±{self.doubt():.1%})"
        others = ", ".join(f"{name.removesuffix('_ms').replace('_', ' ')} {each:+.1%}" for name, each in errors.items())
        return f"drafters by table beside {self.count} requests of probes: {speed}, {others}"


def _off(value: float, real: float) -> float:
    return value / real - 1.0 if real else math.nan
