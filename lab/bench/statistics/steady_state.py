"""Load over time: how long a side was under load, and when that load was steady.

At the beginning of a closed loop the requests under way are still becoming as many as were asked for, and at its end
they run out: both make throughput look lower than the load's. The steady state of a stretch with `concurrency` C is
the time from the first moment at which C requests are under way to the last such moment. For arrivals without that
limit it is the time from the first request to the last one's sending: what comes after only drains. (Ramps left out:
Raj Jain, The Art of Computer Systems Performance Analysis, 1991, chapter 25, "transient removal"; MLPerf's and
aiperf's warm-up phases do the same for the beginning only.)
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from lab.bench.records import MeasuredRequest


class Window(NamedTuple):
    """A span of time, in seconds since the run began."""

    begin: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.begin


def by_stretch(requests: Sequence[MeasuredRequest]) -> list[list[MeasuredRequest]]:
    """Requests in groups of one stretch each, by the stretches' numbers."""
    ordered = sorted(requests, key=lambda each: (each.stretch, each.started, each.index))
    return [list(group) for _, group in groupby(ordered, key=lambda each: each.stretch)]


def under_load(stretch: Sequence[MeasuredRequest]) -> Window:
    """From the first request's sending to the last one's end. `stretch`: one request at least."""
    return Window(min(each.started for each in stretch), max(each.started + each.ended for each in stretch))


def steady_window(stretch: Sequence[MeasuredRequest], concurrency: int | None) -> Window | None:
    """The steady state of a stretch. None: the load never became as high as `concurrency`, or only for a moment."""
    if concurrency is None:
        sent = [each.started for each in stretch]
        return Window(min(sent), max(sent)) if max(sent) > min(sent) else None
    # An end comes before a beginning at the same moment: they are not under way together.
    changes = sorted(
        change for each in stretch for change in ((each.started, 1), (each.started + each.ended, -1)) if each.ended > 0
    )
    running, full = 0, False
    begins: list[float] = []
    ends: list[float] = []
    for at, change in changes:
        running += change
        if (running >= concurrency) != full:
            full = not full
            (begins if full else ends).append(at)
    return Window(begins[0], ends[-1]) if begins and ends[-1] > begins[0] else None


def tokens_within(request: MeasuredRequest, window: Window) -> float:
    """How many of a request's tokens came in a window. Those of a request are spread evenly over its chunks: how many a
    chunk held is not told."""
    if not request.chunks or not request.tokens_out:
        return 0.0
    within = sum(window.begin <= request.started + chunk <= window.end for chunk in request.chunks)
    return request.tokens_out * within / len(request.chunks)
