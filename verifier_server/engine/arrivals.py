"""When a session's next verify request is due, and whether a forward pass waits for it: the batching window.

An engine that starts a pass as soon as any request is ready falls into convoys. Of clients that draft for equally long,
the first gets a pass of its own, the others arrive while it runs, and from then on two groups alternate, each in passes
half as full as they could be. A short wait keeps the group together.
"""

from collections import deque
from collections.abc import Iterable

LONGEST = 0.1  # the longest batching window, as a multiple of the estimated time of the pass
SILENCE = 2.0  # seconds without a request after which a session's client counts as gone
_REMEMBERED = 8  # how many of the latest gaps are kept


class _Gaps:
    """The latest gaps, in seconds. A single outlier at either end counts for nothing."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=_REMEMBERED)
        self._sorted: list[float] = []

    def __bool__(self) -> bool:
        return bool(self._sorted)

    def append(self, gap: float) -> None:
        self._latest.append(gap)
        self._sorted = sorted(self._latest)

    def pop(self) -> None:
        """Forget the last one."""
        self._latest.pop()
        self._sorted = sorted(self._latest)

    @property
    def ends(self) -> tuple[float, float]:
        """The second shortest and the second longest; the shortest and the longest of fewer than five."""
        inner = (len(self._sorted) - 1) // 4
        return self._sorted[inner], self._sorted[-1 - inner]


class ArrivalEstimator:
    """Estimates when the next verify request of one session arrives. All times are in seconds.

    A gap is the time from an answer to the next request. The second shortest of the latest gaps gives the earliest
    arrival and the second longest the latest one, so that a single outlier (a network delay, a pause of the user)
    changes nothing.

    A client may state the gap after an answer. One of `SILENCE` and more says only that nothing should wait for the
    request: it is no measure of when that comes, and what was measured behind such answers tells it better. So these
    gaps are kept as they are, and apart from those that are counted from a stated moment on.
    """

    def __init__(self) -> None:
        self._answered: float | None = None  # time of the last answer; None while a request is waiting
        self._stated: float | None = None  # the gap after the last answer, as the client stated it, if it comes soon
        self._soon = True  # whether the client did not say that nothing should wait for the request
        self._before: float | None = None  # what `_answered` was until the waiting request arrived
        self._whole, self._beyond = _Gaps(), _Gaps()  # measured gaps; measured ones minus the stated ones

    def answered(self, now: float, next_in: float | None) -> None:
        """Note an answer. `next_in`: seconds until the next request, as the client stated; None: it did not."""
        self._soon = next_in is None or next_in < SILENCE
        self._answered, self._stated, self._before = now, next_in if self._soon else None, None

    def arrived(self, now: float) -> None:
        """Note that a request has arrived."""
        if self._answered is not None:
            self._gaps.append(max(0.0, now - self._answered) - (self._stated or 0.0))
        self._before, self._answered = self._answered, None

    def overtaken(self) -> None:
        """Undo `arrived`: the client sent that request before it knew the last answer, so the next one is still due."""
        if self._before is not None:
            self._gaps.pop()
            self._answered, self._before = self._before, None

    def over(self) -> None:
        """Expect no further request: the text has ended, or the answer was an error."""
        self._answered = self._before = None

    @property
    def soonest(self) -> float | None:
        """The earliest time at which the next request is due; None: unknown, nothing should wait for it, or a request
        is waiting."""
        if self._answered is None or not self._soon:
            return None
        if self._stated is not None:
            return self._answered + self._stated
        return self._answered + self._gaps.ends[0] if self._gaps else None

    @property
    def latest(self) -> float | None:
        """The time by which the next request should have arrived; None: unknown, or a request is waiting."""
        if self._answered is None:
            return None
        if not self._gaps:
            return None if self._stated is None else self._answered + self._stated
        low, high = self._gaps.ends
        return self._answered + (self._stated or 0.0) + high + (high - low) / 2

    @property
    def _gaps(self) -> _Gaps:
        """Those behind answers like the last one."""
        return self._whole if self._stated is None else self._beyond


def window_until(now: float, last: float, pass_time: float, ready: int, expected: Iterable[float]) -> float | None:
    """The time, at most `last`, until which waiting saves most; None: start the pass now. Times in seconds.

    `pass_time`: the estimated time of the pass.
    `ready`: how many sessions wait for it.
    `expected`: the times by which other sessions should have sent a request; past ones are ignored. Waiting for the
        first j of these saves each of the j sessions the rest of a pass that it would otherwise wait for, and costs
        each ready session the wait.
    """
    best, until = 0.0, None
    for count, moment in enumerate(sorted(moment for moment in expected if now < moment <= last), 1):
        wait = moment - now
        gain = count * (pass_time - wait) - ready * wait
        if gain > best:
            best, until = gain, moment
    return until
