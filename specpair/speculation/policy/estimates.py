"""Running estimates of times: a fading mean, a cost curve, and a fading least-squares line."""

from collections.abc import Sequence

from specpair.speculation.policy.cost_by_width import CostByWidth

_SPIKE = 3.0  # a time beyond this multiple of the expected one counts as that multiple


class Mean:
    """Mean of the values so far; the weight of past values is multiplied by `keep` (0 to 1) with each new one."""

    def __init__(self, keep: float) -> None:
        self._keep = keep
        self._sum = self.weight = 0.0  # `weight`: number of values, a faded one counting as a fraction

    @property
    def value(self) -> float:
        """The mean; 0.0 before the first value."""
        return self._sum / self.weight if self.weight else 0.0

    def fade(self, keep: float) -> None:
        """Multiply the weight of all past values by `keep`."""
        self._sum *= keep
        self.weight *= keep

    def learn(self, value: float) -> None:
        self._sum = self._sum * self._keep + value
        self.weight = self.weight * self._keep + 1.0


class Curve:
    """Seconds of a pass by its number of draft tokens: a line through all samples, blended with means.

    Each mean is that of the samples with one number. Real costs have steps (a kernel takes two tokens at a time, say),
    which a line alone would miss. Where the verifier reports the time of its passes, the line runs over those times
    instead of over the number of draft tokens, and their proportions hold until measurements differ.
    """

    _TRUST = 2.0  # samples that the line counts for beside the mean

    def __init__(self, pass_times: Sequence[float] = ()) -> None:
        """`pass_times[k]`: reported seconds of a pass that judges k draft tokens."""
        # A pass over n tokens costs no more than n passes over one.
        rising = list(CostByWidth.of(pass_times))
        rising = [min(each, (k + 1) * rising[0]) for k, each in enumerate(rising)]
        per_draft = (rising[-1] - rising[0]) / (len(rising) - 1) if len(rising) > 1 else 0.0
        # For each number of draft tokens its x on the line: what they cost, in draft tokens of average cost.
        self._places = [(each - rising[0]) / per_draft for each in rising] if per_draft else []
        self._line = Line(0.98, per_draft / rising[0] if len(rising) > 1 else None)
        self._means: dict[int, Mean] = {}

    def at(self, count: int) -> float:
        """Seconds of a pass with `count` draft tokens; 0.0 before the first sample."""
        line = self._line.at(self._place(count))
        mean = self._means.get(count)
        if mean is None:
            return line
        return (mean.value * mean.weight + line * self._TRUST) / (mean.weight + self._TRUST)

    def learn(self, count: int, seconds: float) -> None:
        """Take in one sample; a spike (a network's hiccup, say) counts as three times the expected time."""
        known = self.at(count)
        usual = min(seconds, _SPIKE * known) if known else seconds
        self._line.learn(self._place(count), usual)
        for mean in self._means.values():  # times drift for all counts, not only for this one
            mean.fade(0.98)
        self._means.setdefault(count, Mean(0.9)).learn(usual)

    def _place(self, count: int) -> float:
        return self._places[count] if count < len(self._places) else float(count)


class Line:
    """Least-squares line through points (x, y); the weight of past points is multiplied by `keep` with each new one.

    Before points of different x are seen, the slope is a prior: `steepness` times the height at 0 where that is given,
    else a tenth of the mean height (an engine whose wider passes are neither free nor expensive).
    """

    _PRIOR_SLOPE = 0.1  # slope over mean y
    _DRIFT = 0.1  # share of a residual that is attributed to drift over time
    _FALL = 0.5  # share of the mean height that drift takes away at once, at most: heights are times
    _TRUST = 2.0  # spread of x (sum of squared deviations) that the prior counts for

    def __init__(self, keep: float, steepness: float | None = None) -> None:
        """`keep`: 0 to 1.
        `steepness`: prior slope as a share of the height at 0; None: a default.
        """
        self._keep, self._steepness = keep, steepness
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    @property
    def slope(self) -> float:
        """The slope, never negative; 0.0 before the first point."""
        if not self._n:
            return 0.0
        spread = self._xx - self._x * self._x / self._n
        tilt = self._xy - self._x * self._y / self._n
        x, y, steep = self._x / self._n, self._y / self._n, self._steepness
        prior = self._PRIOR_SLOPE * y if steep is None else steep * y / (1.0 + steep * x)
        return max(0.0, (tilt + self._TRUST * prior) / (spread + self._TRUST))

    def at(self, x: float) -> float:
        """Height at `x`, never below a tenth of the mean height; 0.0 before the first point."""
        if not self._n:
            return 0.0
        mean = self._y / self._n
        return max(0.1 * mean, mean + self.slope * (x - self._x / self._n))

    def learn(self, x: float, y: float) -> None:
        """Take in one point."""
        if self._n:  # drift over time affects every x: shift the past points a little
            drift = max(self._DRIFT * (y - self.at(x)), -self._FALL * self._y / self._n)
            self._y += drift * self._n
            self._xy += drift * self._x
        self._n, self._x, self._y = self._n * self._keep + 1.0, self._x * self._keep + x, self._y * self._keep + y
        self._xx, self._xy = self._xx * self._keep + x * x, self._xy * self._keep + x * y
