"""Statistics of a trace: acceptance by depth, activities over time, and tokens per second over time."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from drafter_client import statistics
from lab.report.reader import Exchange, Record, RunTrace, Value


class Depth(NamedTuple):
    """Acceptance at one depth. Depth 1 is the first token of a draft that the target judged."""

    depth: int
    drafts: int  # draft tokens judged at this depth
    accepted: int  # of these, those accepted

    @property
    def share(self) -> float:
        """The acceptance rate at this depth, 0 to 1."""
        return self.accepted / self.drafts


def acceptance_by_depth(rounds: Sequence[Record]) -> list[Depth]:
    """Acceptance at each depth, over all rounds.

    A draft token is accepted only if all before it are. So for drafts of equal length the acceptance rate falls with
    the depth; over drafts of different lengths it need not.
    """
    judged, accepted = ([_whole(record[name]) for record in rounds] for name in ("judged", "accepted"))
    return [
        Depth(depth, sum(count >= depth for count in judged), sum(count >= depth for count in accepted))
        for depth in range(1, max(judged, default=0) + 1)
    ]


class Lane(Enum):
    """A kind of activity, drawn as one line of the timeline."""

    DRAFTING = "drafting"
    NETWORK = "network"
    QUEUE = "queue"
    VERIFY = "verify"


class Span(NamedTuple):
    """An interval in which one lane was active. `begin` and `end`: milliseconds since the run began."""

    lane: Lane
    begin: float
    end: float


def timeline(run: RunTrace) -> list[Span]:
    """All activities that the trace of a run holds, ordered by their begin.

    The clocks of the two machines are not compared: `statistics.exchange` says how a request is placed on the
    drafter's. A verifier pass of self-continuation is placed so that it ends when the drafter heard of it.
    """
    exchanges = list(run.prefills)
    for record in run.rounds:
        if record["arrived_ms"] is not None:
            exchanges.append(Exchange(*(_number(record[name]) for name in Exchange._fields)))
    spans = [Span(Lane.DRAFTING, began, ended) for began, ended in run.steps]
    spans += [Span(Lane.VERIFY, arrived - took, arrived) for took, arrived in run.self_continuation_passes]
    for exchange in exchanges:
        spans += _lanes_of(exchange)
    return sorted((span for span in spans if span.end > span.begin), key=lambda span: span.begin)


def _lanes_of(exchange: Exchange) -> list[Span]:
    sent, queue, forward, arrived = exchange
    _, (_, queued, begins), (_, _, ends) = statistics.exchange(statistics.VERIFY, sent, arrived, queue, forward)
    return [
        Span(Lane.NETWORK, sent, queued),
        Span(Lane.QUEUE, queued, begins),
        Span(Lane.VERIFY, begins, ends),
        Span(Lane.NETWORK, ends, arrived),
    ]


def window(spans: Sequence[Span], passes: int) -> tuple[float, float]:
    """Begin and end, in milliseconds, of the part of a timeline to show: at most `passes` verifier passes, those in the
    middle. (0, 0) if there are no spans."""
    if not spans:
        return 0.0, 0.0
    begins = sorted({span.begin for span in spans if span.lane is Lane.VERIFY})
    if len(begins) <= passes:
        return min(span.begin for span in spans), max(span.end for span in spans)
    first = (len(begins) - passes) // 2
    return begins[first], begins[first + passes]


def coverage(spans: Iterable[Span], lane: Lane, begin: float, end: float, cells: int) -> list[float]:
    """Cut the time from `begin` to `end` (milliseconds) into equal cells. Returns the share of each, 0 to 1, in which
    the lane was active."""
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
    """The union of the spans, as separate intervals in order."""
    merged: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda span: span.begin):
        if merged and span.begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], span.end)
        else:
            merged.append((span.begin, span.end))
    return merged


class Rate(NamedTuple):
    """Tokens per second within one interval of the run. `begin` and `end`: milliseconds since the run began."""

    begin: float
    end: float
    rate: float


def speed_over_time(tokens: Iterable[Record], total_ms: float, most: int) -> list[Rate]:
    """The rates in equal intervals of the run: `most` of them, or fewer so that each holds four tokens on average.

    `tokens`: records of `tokens.csv`.
    """
    times = [_number(record["committed_ms"]) for record in tokens]
    total = max([total_ms, *times])
    intervals = max(1, min(most, len(times) // 4))
    if total <= 0.0:
        return []
    counts = [0] * intervals
    for at in times:
        counts[min(intervals - 1, max(0, int(at / total * intervals)))] += 1
    width = total / intervals
    return [Rate(at * width, (at + 1) * width, 1e3 * count / width) for at, count in enumerate(counts)]


def _number(value: Value) -> float:
    return float(value or 0.0)


def _whole(value: Value) -> int:
    return int(value or 0)
