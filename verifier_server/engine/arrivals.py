"""When a session's next guess is to be expected: by what its client says, else by the gaps between its last ones."""

from collections import deque

_REMEMBERED = 8  # gaps


class ArrivalEstimator:
    """Answers and arrivals of one session; times and gaps in seconds.

    Of the last gaps the second shortest counts as soon and the second longest as late, so that one odd gap (the
    network's hiccup, the user's pause) changes nothing.
    """

    def __init__(self) -> None:
        self._answered: float | None = None  # the last answer, while it is the client's turn
        self._stated: float | None = None  # what the client said of the gap behind it
        self._before: float | None = None  # the last answer, until the guess that has come since is answered
        self._gaps: deque[float] = deque(maxlen=_REMEMBERED)  # measured, less what the client had said
        self._sorted: list[float] = []

    def answered(self, now: float, next_in: float | None) -> None:
        """A guess was answered, and the next may come `next_in` later; None: the client does not say."""
        if (next_in is None) != (self._stated is None):
            self._gaps.clear()
            self._sorted = []
        self._answered, self._stated, self._before = now, next_in, None

    def arrived(self, now: float) -> None:
        """A guess has come."""
        if self._answered is not None:
            self._gaps.append(max(0.0, now - self._answered) - (self._stated or 0.0))
            self._sorted = sorted(self._gaps)
        self._before, self._answered = self._answered, None

    def overtaken(self) -> None:
        """The guess that came last had been sent before the last answer was known: another is still expected."""
        if self._before is not None:
            self._gaps.pop()
            self._sorted = sorted(self._gaps)
            self._answered, self._before = self._before, None

    def over(self) -> None:
        """Nothing more is to be expected: the text has ended, or an error was answered."""
        self._answered = self._before = None

    @property
    def soonest(self) -> float | None:
        """The moment from which on the next guess is to be expected; None: unknown, or it is there already."""
        if self._answered is None:
            return None
        if self._stated is not None:
            return self._answered + self._stated
        return self._answered + self._sorted[self._inner] if self._sorted else None

    @property
    def latest(self) -> float | None:
        """The moment by which the next guess should have come; None: unknown, or it is there already."""
        if self._answered is None:
            return None
        if not self._sorted:
            return None if self._stated is None else self._answered + self._stated
        low, high = self._sorted[self._inner], self._sorted[-1 - self._inner]
        return self._answered + (self._stated or 0.0) + high + (high - low) / 2

    @property
    def _inner(self) -> int:
        return (len(self._sorted) - 1) // 4
