"""Running estimates of times, each forgetting at its own pace."""

from collections.abc import Sequence
from itertools import accumulate

_SPIKE = 3.0  # times the time expected


class Mean:
    """Mean of what came in, past values fading by `keep` with each new one."""

    def __init__(self, keep: float) -> None:
        self._keep = keep
        self._sum = self.weight = 0.0  # `weight`: how many, the faded ones in part

    @property
    def value(self) -> float:
        """0.0 before the first."""
        return self._sum / self.weight if self.weight else 0.0

    def fade(self, keep: float) -> None:
        """Let what was seen count for less."""
        self._sum *= keep
        self.weight *= keep

    def learn(self, value: float) -> None:
        self._sum = self._sum * self._keep + value
        self.weight = self.weight * self._keep + 1.0


class Curve:
    """Milliseconds of an exchange by the drafts in it: a line through all that was seen, bent to each own mean.

    Real costs have steps (a kernel takes two tokens at a time, say), which a line alone would miss. Where the
    verifier says what its passes take, the line is drawn over those times instead of over the number of drafts, and
    their proportions are believed until others are seen.
    """

    _TRUST = 2.0  # outcomes of one length that the line counts for there

    def __init__(self, pass_ms: Sequence[float] = ()) -> None:
        """`pass_ms[k]`: milliseconds of a pass that judges k drafts."""
        # A pass over n tokens costs no less than a narrower one, and no more than n passes over one.
        rising = [min(ms, (k + 1) * pass_ms[0]) for k, ms in enumerate(accumulate(pass_ms, max))]
        per_draft = (rising[-1] - rising[0]) / (len(rising) - 1) if len(rising) > 1 else 0.0
        # How far along the line each count lies: its cost in drafts of average cost.
        self._places = [(ms - rising[0]) / per_draft for ms in rising] if per_draft else []
        self._line = Line(0.98, per_draft / rising[0] if len(rising) > 1 and rising[0] else None)
        self._own: dict[int, Mean] = {}

    def at(self, count: int) -> float:
        """0.0 before the first outcome."""
        line = self._line.at(self._place(count))
        own = self._own.get(count)
        if own is None:
            return line
        return (own.value * own.weight + line * self._TRUST) / (own.weight + self._TRUST)

    def learn(self, count: int, milliseconds: float) -> None:
        """Take in one exchange; a sudden tenfold (a network's hiccup) counts as threefold."""
        known = self.at(count)
        usual = min(milliseconds, _SPIKE * known) if known else milliseconds
        self._line.learn(self._place(count), usual)
        for own in self._own.values():  # times change for all lengths, whichever is in use
            own.fade(0.98)
        self._own.setdefault(count, Mean(0.9)).learn(usual)

    def _place(self, count: int) -> float:
        return self._places[count] if count < len(self._places) else float(count)


class Line:
    """Least-squares line through points (x, y), past points fading by `keep` with each new one.

    Before points of different x are seen the slope is a guess: that of a line as steep as given, for its height at 0,
    else a tenth of the mean height, an engine whose passes are neither free nor dear to widen.
    """

    _GUESS = 0.1  # slope over mean y
    _DRIFT = 0.1  # share of a surprise that is taken for a change with time
    _TRUST = 2.0  # spread of x (sum of squared deviations) that the guess counts for

    def __init__(self, keep: float, steepness: float | None = None) -> None:
        """`steepness`: slope over the height at 0."""
        self._keep, self._steepness = keep, steepness
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    @property
    def slope(self) -> float:
        """Never negative; 0.0 before the first point."""
        if not self._n:
            return 0.0
        spread = self._xx - self._x * self._x / self._n
        tilt = self._xy - self._x * self._y / self._n
        x, y, steep = self._x / self._n, self._y / self._n, self._steepness
        guess = self._GUESS * y if steep is None else steep * y / (1.0 + steep * x)
        return max(0.0, (tilt + self._TRUST * guess) / (spread + self._TRUST))

    def at(self, x: float) -> float:
        """Height at `x`, never below a tenth of the mean height; 0.0 before the first point."""
        if not self._n:
            return 0.0
        mean = self._y / self._n
        return max(0.1 * mean, mean + self.slope * (x - self._x / self._n))

    def learn(self, x: float, y: float) -> None:
        if self._n:  # what changes with time changes for every x: move the points seen along a little
            drift = self._DRIFT * (y - self.at(x))
            self._y += drift * self._n
            self._xy += drift * self._x
        self._n, self._x, self._y = self._n * self._keep + 1.0, self._x * self._keep + x, self._y * self._keep + y
        self._xx, self._xy = self._xx * self._keep + x * x, self._xy * self._keep + x * y
