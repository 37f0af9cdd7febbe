"""The measures of a run: columns of tables and files, objectives of a search and the docs are made from them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, variance
from typing import Literal

from specpair.command_line.table import NOTHING, figure

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean of replications. `half`: half the width of its interval; None: there are too few for one.

    `least`, `most`: what lies beyond them cannot be, as a share above 1, and the interval ends there.
    """

    mean: float
    half: float | None = None
    least: float = -math.inf
    most: float = math.inf

    @property
    def low(self) -> float | None:
        return None if self.half is None else max(self.mean - self.half, self.least)

    @property
    def high(self) -> float | None:
        return None if self.half is None else min(self.mean + self.half, self.most)

    @property
    def cut(self) -> bool:
        """Whether the interval is cut at a possible bound, and so is asymmetric."""
        return self.half is not None and not self.least <= self.mean - self.half <= self.mean + self.half <= self.most


def estimate(values: Sequence[float], least: float = -math.inf, most: float = math.inf) -> Estimate:
    """The mean over independent replications, with its interval by Student's t. Replications without a value (not a
    number) are left out.

    `least`, `most`: between which all values lie.
    """
    found = [value for value in values if not math.isnan(value)]
    if len(found) < 2:
        return Estimate(found[0] if found else math.nan, None, least, most)
    half = t_quantile(len(found) - 1) * math.sqrt(variance(found) / len(found))
    return Estimate(fmean(found), half, least, most)


@cache
def t_quantile(degrees: int) -> float:
    """The t that a variable of Student's distribution stays within, on both sides, with the chance `CONFIDENCE`."""
    low, high = 0.0, 1.0
    while _within(high, degrees) < CONFIDENCE:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _within(middle, degrees) < CONFIDENCE else (low, middle)
    return high


def _within(t: float, degrees: int) -> float:
    """The chance that a variable of Student's distribution lies within -t and t (Abramowitz and Stegun, Handbook of
    Mathematical Functions, 1964, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine if odd else 1.0), 0.0
    for step in range(1 + odd, degrees, 2):
        total += term
        term *= cosine**2 * step / (step + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@dataclass(frozen=True, slots=True)
class RunMeasure:
    """A measure of a run, 0 or more. `statistic`: the statistic of a distribution, such as "p95"; "": a single value.

    Measures of one distribution have one `title`.
    """

    name: str
    title: str
    unit: str
    better: Literal["more", "less", ""]
    meaning: str
    statistic: str = ""

    @property
    def words(self) -> str:
        """The title, with the statistic."""
        return f"{self.title} {self.statistic}".strip()

    @property
    def scale(self) -> float:
        """The factor for values in charts, which show shares in percent."""
        return 100.0 if self.unit == SHARE else 1.0

    @property
    def heading(self) -> str:
        """The heading of its column or row."""
        return f"{self.words}, {self.unit}" if self.unit not in ("", SHARE) else self.words

    @property
    def caption(self) -> str:
        """The caption of its chart."""
        return f"{self.words}, %" if self.unit == SHARE else self.heading

    def estimate(self, values: Sequence[float]) -> Estimate:
        """The mean over replications, with an interval cut to possible values."""
        return estimate(values, 0.0, 1.0 if self.unit == SHARE else math.inf)

    def shown(self, value: float | None, signed: bool = False) -> str:
        """A value as text without unit; a share in percent. `signed`: with a plus, as a difference."""
        if value is None or math.isnan(value):
            return NOTHING
        text = f"{100 * value:.1f} %" if self.unit == SHARE else figure(value)
        return f"+{text}" if signed and value > 0 else text

    def text(self, value: Estimate | None, signed: bool = False) -> str:
        """A mean with half its interval, if it has one; with both ends, if the interval is asymmetric."""
        text = NOTHING if value is None else self.shown(value.mean, signed)
        if value is None or text == NOTHING or value.half is None:
            return text
        if value.cut:
            return f"{text} ({self.shown(value.low)} to {self.shown(value.high)})"
        return f"{text} ± {self.shown(value.half)}"


SHARE = "share"
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# By the beginning of their names: title and meaning.
DISTRIBUTED = {
    "ttft": ("TTFT", "time to first token: from the user's request to its first token, a wait for a device included"),
    "tpot": ("TPOT", "time per output token: from the first token to the last, for each token behind the first"),
    "latency": ("latency", "from the user's request to its last token, a wait for a device included"),
    "round": ("time per round", "from the arrival of tokens at the user to the next arrival, all of all requests"),
}
_OWN = (
    RunMeasure("throughput_tps", "throughput", "tokens/s", "more", "tokens that came to users, a second"),
    RunMeasure("requests_rps", "requests", "requests/s", "more", "requests that became whole, a second"),
    RunMeasure(
        "slo_attainment",
        "SLO attainment",
        SHARE,
        "more",
        "of the requests, those that became whole and kept all bounds of `slo`; a request counts from when it ends or "
        "breaks a bound, so one under way that may keep them does not",
    ),
    RunMeasure(
        "goodput_rps", "goodput", "requests/s", "more", "requests that became whole and kept all bounds, a second"
    ),
    RunMeasure("acceptance", "acceptance", SHARE, "more", "accepted draft tokens / draft tokens that were judged"),
    RunMeasure(
        "tokens_per_round", "tokens per round", "tokens", "more", "tokens of an arrival at the user behind the first"
    ),
    RunMeasure("utilisation", "utilisation", SHARE, "", "time of passes / time"),
    RunMeasure("occupancy", "batch occupancy", "rows/pass", "", "sequences of a verifier's pass, mean"),
    RunMeasure("tokens_per_pass", "tokens per pass", "tokens", "", "tokens of a verifier's pass, mean"),
    RunMeasure("queue_depth", "queue depth", "requests", "less", "requests that wait for a pass at a verifier, mean"),
    RunMeasure("slots_held", "slots in use", SHARE, "", "slots that hold a text / all slots of verifiers, mean"),
    RunMeasure("energy_j_per_token", "energy", "J/token", "less", "`prices.watts` of all devices / throughput"),
    RunMeasure(
        "cost_per_million",
        "cost",
        "/1M tokens",
        "less",
        "`prices.per_hour` of all devices, and their energy at `prices.per_kwh`, for a million tokens",
    ),
    RunMeasure("whole", "whole requests", "", "", "requests of which all tokens came"),
    RunMeasure("failed", "failed requests", "", "less", "requests whose device gave up, as a verifier was overloaded"),
    RunMeasure("unfinished", "unfinished requests", "", "", "requests under way when the simulated time was over"),
)


def _percentiles(name: str, title: str, meaning: str) -> list[RunMeasure]:
    return [
        RunMeasure(f"{name}_{each}_ms", title, "ms", "less", f"{100 * share:g} % are at most this: {meaning}", each)
        for each, share in PERCENTILES.items()
    ]


# By name.
MEASURES: dict[str, RunMeasure] = {
    each.name: each
    for each in (
        *_OWN[:2],
        *(each for name, (title, meaning) in DISTRIBUTED.items() for each in _percentiles(name, title, meaning)),
        *_OWN[2:],
    )
}
