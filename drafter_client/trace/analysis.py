"""What a profile comes to: how deep drafts stand, who did what when, and how fast tokens came. Pure figures."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from drafter_client.trace.reader import Exchange, RunTrace
from drafter_client.trace.schema import Row, Value


class Depth(NamedTuple):
    """Of the drafts at one place of the guesses, 1 the first that the target judged: how many, and how many stood."""

    depth: int
    drafts: int
    stood: int

    @property
    def share(self) -> float:
        return self.stood / self.drafts


def acceptance_by_depth(rounds: Iterable[Row]) -> list[Depth]:
    """A draft stands only if all before it do, so the shares of one guess fall; those over guesses of all lengths need
    not."""
    judged: list[int] = []
    accepted: list[int] = []
    for row in rounds:
        judged.append(_whole(row["judged"]))
        accepted.append(_whole(row["accepted"]))
    return [
        Depth(depth, sum(count >= depth for count in judged), sum(count >= depth for count in accepted))
        for depth in range(1, max(judged, default=0) + 1)
    ]


class Lane(Enum):
    """Where time goes."""

    DRAFTING = "drafting"
    NETWORK = "network"
    QUEUE = "queue"
    VERIFY = "verify"


class Span(NamedTuple):
    """A piece of one lane, milliseconds since the run began."""

    lane: Lane
    begin: float
    end: float


def timeline(run: RunTrace) -> list[Span]:
    """All that is known of who was at work when, by beginning.

    The two clocks are not compared: of what an exchange took beyond the verifier's own times, half is taken to be the
    way there and half the way back. A pass that the verifier took by itself is drawn before the moment it was told of.
    """
    exchanges = list(run.prefills)
    for row in run.rounds:
        if row["arrived_ms"] is not None:
            exchanges.append(Exchange(*(_number(row[name]) for name in Exchange._fields)))
    spans = [Span(Lane.DRAFTING, began, ended) for began, ended in run.steps]
    spans += [Span(Lane.VERIFY, told - took, told) for took, told in run.own_passes]
    for exchange in exchanges:
        spans += _lanes_of(exchange)
    return sorted((span for span in spans if span.end > span.begin), key=lambda span: span.begin)


def _lanes_of(exchange: Exchange) -> list[Span]:
    sent, queue, forward, arrived = exchange
    way = max(0.0, arrived - sent - queue - forward) / 2
    came = sent + way
    begins = min(came + queue, arrived)
    ends = min(begins + forward, arrived)
    return [
        Span(Lane.NETWORK, sent, came),
        Span(Lane.QUEUE, came, begins),
        Span(Lane.VERIFY, begins, ends),
        Span(Lane.NETWORK, ends, arrived),
    ]


def window(spans: Sequence[Span], passes: int) -> tuple[float, float]:
    """From when to when to look: all, or of many passes of the target so many from the middle."""
    if not spans:
        return 0.0, 0.0
    begins = sorted({span.begin for span in spans if span.lane is Lane.VERIFY})
    if len(begins) <= passes:
        return min(span.begin for span in spans), max(span.end for span in spans)
    first = (len(begins) - passes) // 2
    return begins[first], begins[first + passes]


def coverage(spans: Iterable[Span], lane: Lane, begin: float, end: float, cells: int) -> list[float]:
    """The time from `begin` to `end` cut into cells: the share of each in which something was going on in the lane."""
    width = (end - begin) / cells
    shares = [0.0] * cells
    if width <= 0.0:
        return shares
    for low, high in _merged(span for span in spans if span.lane is lane and span.end > begin and span.begin < end):
        low, high = (max(low, begin) - begin) / width, (min(high, end) - begin) / width
        for cell in range(int(low), min(cells, int(high) + 1)):
            shares[cell] += max(0.0, min(high, cell + 1) - max(low, cell))
    return [min(1.0, share) for share in shares]


def _merged(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """Times in which any of them was going on, apart from each other."""
    merged: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda span: span.begin):
        if merged and span.begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], span.end)
        else:
            merged.append((span.begin, span.end))
    return merged


class Rate(NamedTuple):
    """Tokens per second within a stretch of the run, milliseconds since it began."""

    begin: float
    end: float
    rate: float


def speed_over_time(tokens: Iterable[Row], total_ms: float, most: int) -> list[Rate]:
    """The run cut into equal stretches: `most`, or fewer where they would hold less than four tokens on average."""
    times = [_number(row["committed_ms"]) for row in tokens]
    total = max([total_ms, *times])
    stretches = max(1, min(most, len(times) // 4))
    if total <= 0.0:
        return []
    counts = [0] * stretches
    for at in times:
        counts[min(stretches - 1, max(0, int(at / total * stretches)))] += 1
    width = total / stretches
    return [Rate(at * width, (at + 1) * width, 1e3 * count / width) for at, count in enumerate(counts)]


def _number(value: Value) -> float:
    return float(value or 0.0)


def _whole(value: Value) -> int:
    return int(value or 0)
