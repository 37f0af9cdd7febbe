"""What a text waited for: a partition of its time, whose parts add up to the total.

Drafting, the network and the verifier work concurrently, and several drafts may be in flight. So their times may add up
to more than the total, or to less, since no request covers self-continuation. In the partition each moment counts once:
for the first of `PARTS` that was under way, or for `OTHER` if none was.
"""

from collections.abc import Iterable, Mapping
from math import floor

PREFILL, VERIFY, QUEUE, NETWORK, DRAFTING, OTHER = "prefill", "verify", "queue", "network", "drafting", "other"
OUTAGE = "outage"  # of OTHER, what was spent waiting for a verifier that was away
PARTS = (PREFILL, VERIFY, QUEUE, NETWORK, DRAFTING)

Span = tuple[str, float, float]  # one of PARTS, its begin and its end, seconds


def exchange(part: str, sent: float, came: float, queue: float, forward: float) -> list[Span]:
    """Split the time of a request: the network there, the verifier's queue, its pass (`part`), the network back.

    `sent` and `came`: seconds of the drafter's clock. Both ways are assumed to take the same time. The verifier
    measures `queue` and `forward` itself; they are cut to the time of the whole request, the queue first.
    """
    way = max(0.0, came - sent - queue - forward) / 2
    back = came - way
    begun = max(sent, back - forward)
    queued = max(sent, begun - queue)
    return [(NETWORK, sent, came), (QUEUE, queued, begun), (part, begun, back)]


def partition(spans: Iterable[Span], begin: float, end: float) -> dict[str, float]:
    """How many of the seconds from `begin` to `end` count for each of PARTS, and for OTHER. No value is negative,
    and their sum is `end - begin`."""
    order = {part: at for at, part in enumerate(PARTS)}
    changes: list[tuple[float, int, int]] = []
    for part, first, last in spans:
        first, last = max(first, begin), min(last, end)
        if first < last:
            changes += [(first, order[part], 1), (last, order[part], -1)]
    times = dict.fromkeys((*PARTS, OTHER), 0.0)
    under_way = [0] * len(PARTS)
    before = begin
    for now, at, step in sorted(changes):
        times[_first(under_way)] += now - before
        under_way[at] += step
        before = now
    times[OTHER] += max(0.0, end - before)
    return times


def _first(under_way: list[int]) -> str:
    return next((part for part, count in zip(PARTS, under_way, strict=True) if count), OTHER)


def fitted(times: Mapping[str, float], total: float) -> dict[str, float]:
    """A partition of `total` seconds by `times`, those of activities that did not overlap.

    What `times` leaves of the total is OTHER. If their sum exceeds the total, as with times of two clocks, all parts
    are scaled down.
    """
    measured = sum(times.values())
    scale = min(1.0, total / measured) if measured > 0 else 1.0
    parts = {part: scale * value for part, value in times.items()}
    return parts | {OTHER: parts.get(OTHER, 0.0) + max(0.0, total - scale * measured)}


def percentages(parts: Iterable[float]) -> list[int]:
    """The share of each part in their sum, in whole percent: those with the largest fractions are rounded up, so that
    they add up to 100. All are 0 if the sum is 0."""
    values = list(parts)
    total = sum(values)
    if total <= 0:
        return [0] * len(values)
    exact = [100 * value / total for value in values]
    whole = [floor(value) for value in exact]
    most_missing = sorted(range(len(values)), key=lambda at: (whole[at] - exact[at], at))
    for at in most_missing[: 100 - sum(whole)]:
        whole[at] += 1
    return whole
