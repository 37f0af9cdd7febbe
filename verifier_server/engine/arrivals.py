"""When a session's next verify request is due, and whether a forward pass waits for it: the batching window.

An engine that starts a pass as soon as any request is ready falls into convoys. Of clients that draft for equally long,
the first gets a pass of its own, the others arrive while it runs, and from then on two groups alternate, each in passes
half as full as they could be. A short wait keeps the group together.
"""

from collections import deque
from collections.abc import Iterable

LONGEST = 0.1  # the longest batching window, as a multiple of the estimated time of the pass
_REMEMBERED = 8  # how many of the latest gaps are kept


class ArrivalEstimator:
    """Estimates when the next verify request of one session arrives. All times are in seconds.

    A gap is the time from an answer to the next request. The second shortest of the latest gaps gives the earliest
    arrival and the second longest the latest one, so that a single outlier (a network delay, a pause of the user)
    changes nothing.
    """

    def __init__(self) -> None:
        self._answered: float | None = None  # time of the last answer; None while a request is waiting
        self._stated: float | None = None  # the gap after the last answer, as the client stated it
        self._before: float | None = None  # what `_answered` was until the waiting request arrived
        self._gaps: deque[float] = deque(maxlen=_REMEMBERED)  # measured gap minus the stated one
        self._sorted: list[float] = []

    def answered(self, now: float, next_in: float | None) -> None:
        """Note an answer. `next_in`: seconds until the next request, as the client stated; None: it did not."""
        if (next_in is None) != (self._stated is None):
            self._gaps.clear()
            self._sorted = []
        self._answered, self._stated, self._before = now, next_in, None

    def arrived(self, now: float) -> None:
        """Note that a request has arrived."""
        if self._answered is not None:
            self._gaps.append(max(0.0, now - self._answered) - (self._stated or 0.0))
            self._sorted = sorted(self._gaps)
        self._before, self._answered = self._answered, None

    def overtaken(self) -> None:
        """Undo `arrived`: the client sent that request before it knew the last answer, so the next one is still due."""
        if self._before is not None:
            self._gaps.pop()
            self._sorted = sorted(self._gaps)
            self._answered, self._before = self._before, None

    def over(self) -> None:
        """Expect no further request: the text has ended, or the answer was an error."""
        self._answered = self._before = None

    @property
    def soonest(self) -> float | None:
        """The earliest time at which the next request is due; None: unknown, or a request is waiting."""
        if self._answered is None:
            return None
        if self._stated is not None:
            return self._answered + self._stated
        return self._answered + self._sorted[self._inner] if self._sorted else None

    @property
    def latest(self) -> float | None:
        """The time by which the next request should have arrived; None: unknown, or a request is waiting."""
        if self._answered is None:
            return None
        if not self._sorted:
            return None if self._stated is None else self._answered + self._stated
        low, high = self._sorted[self._inner], self._sorted[-1 - self._inner]
        return self._answered + (self._stated or 0.0) + high + (high - low) / 2

    @property
    def _inner(self) -> int:
        """Index of the second shortest gap in `_sorted`, or of the shortest among fewer than five."""
        return (len(self._sorted) - 1) // 4


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
