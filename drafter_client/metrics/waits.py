"""What a text waited for: a partition of its time, so that the parts add up to the whole.

Drafting, the network and the verifier are at work side by side, and several drafts may be under way at once, so that
their times add up to more than has passed (or to less: nobody sends for what the verifier decodes by itself). Here each
moment counts once, for the first of `PARTS` that was under way, and for `OTHER` where nothing was.
"""

from collections.abc import Iterable, Mapping
from math import floor

PREFILL, VERIFY, QUEUE, NETWORK, DRAFTING, OTHER = "prefill", "verify", "queue", "network", "drafting", "other"
PARTS = (PREFILL, VERIFY, QUEUE, NETWORK, DRAFTING)

Span = tuple[str, float, float]  # one of PARTS, from when to when, milliseconds


def exchange(part: str, sent: float, came: float, queue_ms: float, model_ms: float) -> list[Span]:
    """The spans of a request: its way there, the verifier's queue, its model (`part`), and the way back.

    Both ways are taken to be equally long. The verifier says how long it took, and cannot have taken longer than all.
    """
    way = max(0.0, came - sent - queue_ms - model_ms) / 2
    back = came - way
    begun = max(sent, back - model_ms)
    queued = max(sent, begun - queue_ms)
    return [(NETWORK, sent, came), (QUEUE, queued, begun), (part, begun, back)]


def partition(spans: Iterable[Span], begin: float, end: float) -> dict[str, float]:
    """Milliseconds from `begin` to `end` by part, all of PARTS and OTHER; none is negative, and they add up."""
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
    """Times that were measured one after the other, as a partition of `total`: what is missing is OTHER, and where
    they come to more (two clocks measured them), each is shortened alike."""
    measured = sum(times.values())
    scale = min(1.0, total / measured) if measured > 0 else 1.0
    parts = {part: scale * value for part, value in times.items()}
    return parts | {OTHER: parts.get(OTHER, 0.0) + max(0.0, total - scale * measured)}


def percentages(parts: Iterable[float]) -> list[int]:
    """Whole per cents of the sum, that add up to 100 (to 0 where there is nothing): those nearest to the next are
    rounded up."""
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
