"""When a session's next verify request is due: as its client states, else measured from the last gaps."""

from collections import deque

_REMEMBERED = 8  # gaps


class ArrivalEstimator:
    """Estimates the next arrival of one session from its answers and arrivals. Times and gaps in seconds.

    Of the last gaps the second shortest gives the earliest arrival and the second longest the latest, so that a single
    outlier (a network delay, a pause of the user) changes nothing.
    """

    def __init__(self) -> None:
        self._answered: float | None = None  # time of the last answer; None while a request is waiting
        self._stated: float | None = None  # the gap after that answer, as the client stated it
        self._before: float | None = None  # `_answered` before the request that is waiting now arrived
        self._gaps: deque[float] = deque(maxlen=_REMEMBERED)  # measured gap minus the stated one
        self._sorted: list[float] = []

    def answered(self, now: float, next_in: float | None) -> None:
        """A request was answered. The client expects to send the next after `next_in`; None: it states nothing."""
        if (next_in is None) != (self._stated is None):
            self._gaps.clear()
            self._sorted = []
        self._answered, self._stated, self._before = now, next_in, None

    def arrived(self, now: float) -> None:
        """A request has arrived."""
        if self._answered is not None:
            self._gaps.append(max(0.0, now - self._answered) - (self._stated or 0.0))
            self._sorted = sorted(self._gaps)
        self._before, self._answered = self._answered, None

    def overtaken(self) -> None:
        """The last request was sent before its client knew the last answer, so the next one is still due."""
        if self._before is not None:
            self._gaps.pop()
            self._sorted = sorted(self._gaps)
            self._answered, self._before = self._before, None

    def over(self) -> None:
        """No further request is expected: the text has ended, or the answer was an error."""
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
        """Index of the second shortest gap, or of the shortest among fewer than five."""
        return (len(self._sorted) - 1) // 4
