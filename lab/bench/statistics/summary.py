"""One side in one case, in numbers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from lab.bench.records import CaseRecord, MeasuredRequest, SideRecord, Slo, Speculation, Stretch
from lab.bench.statistics import measures
from lab.bench.statistics.distribution import Distribution, distribution
from lab.bench.statistics.steady_state import by_stretch, steady_window, tokens_within, under_load

_HOUR, _MILLION = 3600.0, 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures of a side in a case. The keys of `distributions` and `values` are those of `measures.ALL`; a figure that
    was not measured is in neither.

    `requests`: all, failed ones among them. `failures`: how many, by kind.
    `tokens_in`, `tokens_out`: of the requests that tell.
    `loaded_s`, `steady_s`: seconds under load, and of them in the steady state.
    `accepted_per_round`: how many rounds accepted 0, 1, 2, … draft tokens; empty: not told.
    `joules`: by meter.
    """

    case: str
    side: str
    requests: int
    failures: dict[str, int]
    tokens_in: int
    tokens_out: int
    loaded_s: float
    steady_s: float
    distributions: dict[str, Distribution]
    values: dict[str, float]
    drafted: int | None
    accepted: int | None
    rounds: int | None
    accepted_per_round: tuple[int, ...]
    joules: dict[str, float]


def summarise(
    case: CaseRecord, side: SideRecord, requests: Sequence[MeasuredRequest], stretches: Sequence[Stretch]
) -> Summary:
    """Summarise the requests and stretches of a side in a case. The order of both does not matter."""
    whole = [each for each in requests if each.failure is None]
    groups = by_stretch(requests)
    tokens_out = sum(each.tokens_out or 0 for each in whole)
    loaded = fsum(under_load(group).length for group in groups)
    steady = [(group, window) for group in groups if (window := steady_window(group, case.concurrency)) is not None]
    steady_s = fsum(window.length for _, window in steady)
    values: dict[measures.Measure, float] = {}
    if tokens_out and loaded > 0:
        values[measures.LOAD_SPEED] = tokens_out / loaded
        if side.price_per_hour is not None:
            values[measures.COST] = side.price_per_hour / _HOUR * loaded / tokens_out * _MILLION
    if tokens_out and steady_s > 0:
        came = fsum(tokens_within(each, window) for group, window in steady for each in group if each.failure is None)
        values[measures.STEADY_SPEED] = came / steady_s
    if requests and case.slo != Slo():
        good = sum(case.slo.is_met(each) for each in requests)
        values[measures.GOOD_SHARE] = good / len(requests)
        if loaded > 0:
            values[measures.GOODPUT] = good / loaded
    told = [each.speculation for each in whole if each.speculation is not None]
    drafted, accepted, rounds = _drafts(told, values)
    if drafted is not None and tokens_out:
        values[measures.DRAFTED] = drafted / tokens_out
    joules = _energy(whole, stretches, values)
    return Summary(
        case=case.name,
        side=side.name,
        requests=len(requests),
        failures=dict(sorted(Counter(each.failure.kind for each in requests if each.failure is not None).items())),
        tokens_in=sum(each.tokens_in or 0 for each in whole),
        tokens_out=tokens_out,
        loaded_s=loaded,
        steady_s=steady_s,
        distributions={
            measure.key: found
            for measure in measures.DISTRIBUTED
            if (found := distribution(measures.values_of(measure, requests))) is not None
        },
        values={measure.key: values[measure] for measure in measures.SINGLE if measure in values},
        drafted=drafted,
        accepted=accepted,
        rounds=rounds,
        accepted_per_round=_histogram(told),
        joules=joules,
    )


def _drafts(
    told: Sequence[Speculation], values: dict[measures.Measure, float]
) -> tuple[int | None, int | None, int | None]:
    """Drafted, accepted and rounds of all requests that tell; their quotients go to `values`."""
    if not told:
        return None, None, None
    rounds = sum(each.rounds for each in told if each.rounds is not None) or None
    total = Speculation(
        drafted=sum(each.drafted for each in told), accepted=sum(each.accepted for each in told), rounds=rounds
    )
    if (rate := total.acceptance_rate) is not None:
        values[measures.ACCEPTANCE_RATE] = rate
    with_rounds = [each for each in told if each.rounds is not None]
    length = Speculation(drafted=0, accepted=sum(each.accepted for each in with_rounds), rounds=rounds)
    if (mean := length.mean_acceptance_length) is not None:
        values[measures.ACCEPTANCE_LENGTH] = mean
    return total.drafted, total.accepted, rounds


def _histogram(told: Sequence[Speculation]) -> tuple[int, ...]:
    counts: Counter[int] = Counter()
    for each in told:
        counts.update(dict(enumerate(each.accepted_per_round or ())))
    return tuple(counts[length] for length in range(max(counts, default=-1) + 1))


def _energy(
    whole: Sequence[MeasuredRequest], stretches: Sequence[Stretch], values: dict[measures.Measure, float]
) -> dict[str, float]:
    """Joules by meter over the stretches that were measured; joules a token go to `values`."""
    metered = {each.number: each for each in stretches if each.energy_joules}
    names = sorted({name for each in metered.values() for name in each.energy_joules})
    joules = {name: fsum(each.energy_joules.get(name, 0.0) for each in metered.values()) for name in names}
    tokens = sum(each.tokens_out or 0 for each in whole if each.stretch in metered)
    if joules and tokens:
        values[measures.ENERGY] = fsum(joules.values()) / tokens
    return joules
