"""Which side wins in a case, by how much, and whether that is noise.

Sides got the same requests, so they are compared by pairs. What is drawn by the bootstrap is a request of the case with
all its repetitions: repeating a prompt tells more of that prompt and nothing of others.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from lab.bench.records import MeasuredRequest, Stretch
from lab.bench.statistics import measures
from lab.bench.statistics.bootstrap import FEWEST, Quotients, paired_ratio
from lab.bench.statistics.measures import Measure
from lab.bench.statistics.steady_state import by_stretch, under_load

Fraction = tuple[float, float]  # numerator and denominator of a unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`side` against `baseline` by one measure in one case.

    `units`: requests of the case, or stretches, that both sides have.
    `ratio`: the side's figure / the baseline's. `low`, `high`: its interval of 95 %; None: too few units.
    `winner`: of the two, where the interval leaves 1 out.
    `verdict`: the same as a sentence.
    """

    case: str
    measure: str
    side: str
    baseline: str
    units: int
    ratio: float
    low: float | None
    high: float | None
    winner: str | None
    verdict: str


@dataclass(frozen=True, slots=True)
class Sample:
    """What a side did in a case."""

    side: str
    requests: Sequence[MeasuredRequest]
    stretches: Sequence[Stretch]


def compare(case: str, one: Sample, baseline: Sample) -> list[Comparison]:
    """Compare by every measure that both sides have."""
    found = []
    for measure, fractions in _FRACTIONS.items():
        mine, theirs = fractions(one), fractions(baseline)
        # By their text: numbers and tuples of them, in an order that depends on nothing else.
        common = sorted(mine.keys() & theirs.keys(), key=repr)
        compared = paired_ratio(_quotients(mine, common), _quotients(theirs, common))
        if compared is None:
            continue
        winner = None
        if compared.low is not None and compared.high is not None and not compared.low <= 1 <= compared.high:
            higher = one.side if compared.ratio > 1 else baseline.side
            lower = baseline.side if compared.ratio > 1 else one.side
            winner = higher if measure.better == "higher" else lower
        found.append(
            Comparison(
                case=case,
                measure=measure.key,
                side=one.side,
                baseline=baseline.side,
                units=len(common),
                ratio=compared.ratio,
                low=compared.low,
                high=compared.high,
                winner=winner,
                verdict=verdict(
                    measure, one.side, baseline.side, len(common), compared.ratio, compared.low, compared.high
                ),
            )
        )
    return found


def verdict(
    measure: Measure, side: str, baseline: str, units: int, ratio: float, low: float | None, high: float | None
) -> str:
    """A comparison as a sentence."""
    if low is None or high is None:
        return f"too few to tell: {units} of both sides, {FEWEST} are needed (ratio {times(ratio)})"
    bounds = f"{times(low)} to {times(high)}"
    if low <= 1 <= high:
        return f"no difference seen: {bounds}"
    if measure is measures.SPEED:
        return f"{side} is {times(ratio)} times {baseline} ({bounds})"
    return f"{measure.name} of {side} is {times(ratio)} times that of {baseline} ({bounds})"


def times(ratio: float) -> str:
    """A ratio with as many digits as tell it from 1."""
    return f"{ratio:.2f}" if abs(ratio - 1) >= 0.02 else f"{ratio:.3f}"


def _quotients(fractions: Mapping[Hashable, Fraction], units: Sequence[Hashable]) -> Quotients:
    return Quotients([fractions[unit][0] for unit in units], [fractions[unit][1] for unit in units])


def _of_requests(
    fraction: Callable[[MeasuredRequest], Fraction | None],
) -> Callable[[Sample], Mapping[Hashable, Fraction]]:
    """Sums of fractions by the request's index, so over its repetitions."""

    def of(sample: Sample) -> Mapping[Hashable, Fraction]:
        sums: defaultdict[Hashable, list[Fraction]] = defaultdict(list)
        for request in sorted(sample.requests, key=lambda each: each.pairing):
            if request.failure is None and (found := fraction(request)) is not None:
                sums[request.index].append(found)
        return {index: _sum(several) for index, several in sums.items()}

    return of


def _mean_of(measure: Measure) -> Callable[[Sample], Mapping[Hashable, Fraction]]:
    value = measures.OF_A_REQUEST[measure]
    return _of_requests(lambda request: None if (found := value(request)) is None else (found, 1.0))


def _speed(request: MeasuredRequest) -> Fraction | None:
    """Tokens and seconds, so that the figure of several requests is that of all their tokens."""
    if not request.tokens_out or not request.chunks or request.chunks[-1] <= 0:
        return None
    return float(request.tokens_out), request.chunks[-1]


def _load(sample: Sample) -> Mapping[Hashable, Fraction]:
    """Tokens and seconds under load, by stretch: the first of a repetition, the second, …"""
    found: dict[Hashable, Fraction] = {}
    counts: defaultdict[int, int] = defaultdict(int)
    for group in by_stretch(sample.requests):
        tokens = sum(each.tokens_out or 0 for each in group if each.failure is None)
        repetition = group[0].repetition
        found[repetition, counts[repetition]] = (float(tokens), under_load(group).length)
        counts[repetition] += 1
    return found


def _energy(sample: Sample) -> Mapping[Hashable, Fraction]:
    """Joules and tokens, by stretch as in `_load`."""
    joules = {each.number: sum(each.energy_joules.values()) for each in sample.stretches if each.energy_joules}
    found: dict[Hashable, Fraction] = {}
    counts: defaultdict[int, int] = defaultdict(int)
    for group in by_stretch(sample.requests):
        repetition = group[0].repetition
        tokens = sum(each.tokens_out or 0 for each in group if each.failure is None)
        if group[0].stretch in joules and tokens:
            found[repetition, counts[repetition]] = (joules[group[0].stretch], float(tokens))
        counts[repetition] += 1
    return found


def _sum(several: Sequence[Fraction]) -> Fraction:
    return sum(over for over, _ in several), sum(under for _, under in several)


_FRACTIONS: dict[Measure, Callable[[Sample], Mapping[Hashable, Fraction]]] = {
    measures.SPEED: _of_requests(_speed),
    measures.TTFT: _mean_of(measures.TTFT),
    measures.ITL: _mean_of(measures.ITL),
    measures.LATENCY: _mean_of(measures.LATENCY),
    measures.LOAD_SPEED: _load,
    measures.ENERGY: _energy,
}
COMPARED = tuple(_FRACTIONS)
