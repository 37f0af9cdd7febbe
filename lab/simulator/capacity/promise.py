"""What a fleet has to keep: bounds of measures, judged by the intervals of replications. Pure."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lab.simulator.results.measures import MEASURES, SHARE, Measure
from lab.simulator.results.student import CONFIDENCE, Estimate
from lab.simulator.search.outcomes import ATTAINMENT, Outcome
from lab.simulator.search.space import BadSearch
from specpair.command_line.suggestion import advice

_BOUND = re.compile(r"\s*(\w+)\s*(<=|>=)\s*(\S+)\s*")


@dataclass(frozen=True, slots=True)
class Bound:
    """A measure is `limit` at most, or at least."""

    measure: Measure
    limit: float
    at_most: bool

    @property
    def asked(self) -> str:
        """`at most 1,500 ms`"""
        return f"at {'most' if self.at_most else 'least'} {amount(self.measure, self.limit)}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether replications keep a bound in the mean, and whether that is more than chance."""

    bound: Bound
    found: Estimate
    kept: bool
    sure: bool

    @property
    def excess(self) -> float:
        """How far the mean is beyond the bound; negative: within it."""
        return (self.found.mean - self.bound.limit) * (1 if self.bound.at_most else -1)

    @property
    def severity(self) -> float:
        """The excess as a share of the bound: what bounds of several measures are compared by."""
        if math.isnan(self.excess):
            return math.inf
        return self.excess / (abs(self.bound.limit) or 1.0)


def attainment(share: float) -> Bound:
    """At least a share of the requests is within `slo`. Raises BadSearch for what is no share."""
    if not 0 < share <= 1:
        raise BadSearch(f"--attainment: {share:g} is no share above 0 and up to 1, such as 0.95")
    return Bound(MEASURES[ATTAINMENT], share, at_most=False)


def parse_bound(given: str) -> Bound:
    """A bound as it is written in a flag, such as `ttft_p95_ms<=1500`. Raises BadSearch."""
    parts = _BOUND.fullmatch(given)
    try:
        limit = float(parts[3]) if parts else math.nan
    except ValueError:
        limit = math.nan
    if parts is None or not math.isfinite(limit):
        raise BadSearch(f"--bound: {given!r} is no bound of a measure: write it as in 'ttft_p95_ms<=1500'")
    if parts[1] not in MEASURES:
        raise BadSearch(f"--bound: no measure {parts[1]!r}{advice(parts[1], MEASURES)}")
    return Bound(MEASURES[parts[1]], limit, at_most=parts[2] == "<=")


def judged(bound: Bound, outcome: Outcome) -> Judgement:
    """Replications that have no value are left out. If none has one, the bound is not kept."""
    found = estimated(bound.measure, outcome)
    if math.isnan(found.mean):
        return Judgement(bound, found, kept=False, sure=False)
    sign = 1 if bound.at_most else -1
    kept = sign * found.mean <= sign * bound.limit
    if found.low is None or found.high is None:
        return Judgement(bound, found, kept, sure=False)
    ends = sorted((sign * found.low, sign * found.high))
    return Judgement(bound, found, kept, sure=ends[1] <= sign * bound.limit or ends[0] > sign * bound.limit)


def estimated(measure: Measure, outcome: Outcome) -> Estimate:
    """The mean of replications. Where all requests attain the promise, or none does, replications have no spread: the
    interval is that of a share of so many requests then (Clopper and Pearson, Biometrika 26, 1934)."""
    found = outcome.estimate(measure.name)
    if measure.name != ATTAINMENT or found.mean not in (0.0, 1.0):
        return found
    ended = sum(value for name in ("whole", "aborted") for value in outcome.values(name) if not math.isnan(value))
    return replace(found, half=1.0 - ((1.0 - CONFIDENCE) / 2) ** (1.0 / ended) if ended else None)


def keeps(judgements: Sequence[Judgement]) -> bool:
    """Whether all bounds are kept in the mean."""
    return all(each.kept for each in judgements)


def is_sure(judgements: Sequence[Judgement]) -> bool:
    """Whether it is more than chance that all are kept, or that one is not."""
    if keeps(judgements):
        return all(each.sure for each in judgements)
    return any(each.sure and not each.kept for each in judgements)


def amount(measure: Measure, value: float) -> str:
    """A value with its unit."""
    return f"{measure.shown(value)} {'' if measure.unit == SHARE else measure.unit}".rstrip()
