"""How soon a place is freed, by how often one was: for the time after which a refused client may ask again."""

_WEIGHT = 0.2  # weight (0 to 1) of the latest interval in the moving average of the intervals between freed places


class Turnover:
    """Measures how many places are taken, and how often one of them is freed. Times are in seconds."""

    def __init__(self) -> None:
        self.busy = 0  # places taken
        self._since = 0.0  # when the last place was freed, or the first was taken
        self._rests = 0  # how often a place was freed
        self._every = 0.0  # moving average of the interval between two such times

    def taken(self, now: float) -> None:
        """Note that one more place is taken."""
        if not self.busy:
            self._since = now
        self.busy += 1

    def freed(self, now: float) -> None:
        """Note that a place was freed."""
        self.busy -= 1
        if self._rests:
            self._every += (_WEIGHT if self._rests > 1 else 1.0) * (now - self._since - self._every)
        self._rests += 1
        self._since = now

    def expected(self, now: float) -> float:
        """Estimated seconds until a place is freed: the average interval, or the present one if it is longer."""
        return max(self._every, now - self._since)
