"""Running estimates, in seconds, of a draft step, a verifier pass, and the round trip."""

from collections import deque
from collections.abc import Sequence
from copy import deepcopy

from specpair.speculation.policy.cost_by_width import LEAST, CostByWidth, rising

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
        costs = list(CostByWidth.of(pass_times))
        # A pass over n tokens costs no more than n passes over one.
        rising = [min(each, (k + 1) * costs[0]) for k, each in enumerate(costs)]
        per_draft = (rising[-1] - rising[0]) / (len(rising) - 1) if len(rising) > 1 else 0.0
        # For each number of draft tokens its x on the line: what they cost, in draft tokens of average cost.
        self._places = [(each - rising[0]) / per_draft for each in rising] if per_draft else []
        self._line = Line(0.98, per_draft / rising[0] if len(rising) > 1 else None)
        self._means: dict[int, Mean] = {}

    def at(self, count: int) -> float:
        """Seconds of a pass with `count` draft tokens; 0.0 before the first sample."""
        line = self._line.at(self._position(count))
        mean = self._means.get(count)
        if mean is None:
            return line
        return (mean.value * mean.weight + line * self._TRUST) / (mean.weight + self._TRUST)

    def learn(self, count: int, seconds: float) -> None:
        """Take in one sample; a spike (a network's hiccup, say) counts as three times the expected time."""
        known = self.at(count)
        usual = min(seconds, _SPIKE * known) if known else seconds
        self._line.learn(self._position(count), usual)
        for mean in self._means.values():  # times drift for all counts, not only for this one
            mean.fade(0.98)
        self._means.setdefault(count, Mean(0.9)).learn(usual)

    def _position(self, count: int) -> float:
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
        if self._n:  # drift over time affects every x: shift the past points a little
            drift = max(self._DRIFT * (y - self.at(x)), -self._FALL * self._y / self._n)
            self._y += drift * self._n
            self._xy += drift * self._x
        self._n, self._x, self._y = self._n * self._keep + 1.0, self._x * self._keep + x, self._y * self._keep + y
        self._xx, self._xy = self._xx * self._keep + x * x, self._xy * self._keep + x * y


_LINK_WINDOW = 24  # latest exchanges that the round trip is estimated from
_LINK_QUANTILE = 0.25  # of their times: low, because Wi-Fi power-save and late timers only ever lengthen an exchange
_ASSUMED_WIDER = 0.5  # share of a draft step's time that another branch adds, until it is measured
_WIDER_KNOWN = 2.0  # weight of the measurements from which on that share is known: the first may have one-time work
_SHARED = 1.5  # mean sessions in a pass from which a draft token is priced by its cost to all of them
NARROW = 17  # tokens of a pass of one text, at most: the pending one and the longest automatic draft
_EARLY, _SPREADS = 0.002, 2.0  # the margin: seconds, plus mean errors of the estimate of a verifier pass


class LatencyModel:
    """Running estimates of one drafter, one link and one verifier, all in seconds."""

    def __init__(self, pass_times: Sequence[float] = ()) -> None:
        """`pass_times`: seconds of a verifier pass over 1, 2, … tokens, as the verifier reports them, those that many
        sessions share included.
        """
        self._stated = CostByWidth.of(pass_times)
        self._verify, self._reported = Curve(self._stated[:NARROW]), Curve(self._stated[:NARROW])
        if self._stated:  # used until a pass was measured
            self._reported.learn(0, self._stated[0])
        self._measured, self._wider_before = False, 0.0
        self._error = Mean(0.9)
        self._alone_tokens, self._alone_judged, self._alone_step = Mean(0.95), Mean(0.95), Mean(0.95)
        self._passes: list[float] = []  # cache by number of draft tokens, until the next pass
        self._costs: dict[int, float] = {}  # cache by number of draft tokens, until the next pass
        self._begin()

    def _begin(self) -> None:
        """Reset the estimates of one text at one time: the link, the load of the verifier, and the draft step.

        A draft step that was measured too slow must not keep later texts from drafting, which alone would correct it.
        """
        self._draft, self._wider, self._reading = Mean(0.9), Mean(0.9), Mean(0.8)
        self._links: deque[float] = deque(maxlen=_LINK_WINDOW)
        self._queue = Mean(0.8)
        self._sessions, self._width, self._judged, self._costs = Mean(0.8), Mean(0.8), Mean(0.9), {}
        self.link = 0.0  # the round trip, without the verifier's own times; 0.0 before the first exchange

    def for_another_text(self) -> "LatencyModel":
        """A copy that keeps the times of verifier passes and drops estimates that may differ from text to text."""
        other = deepcopy(self)
        other._begin()
        other._wider_before = self.wider
        return other

    @property
    def queue(self) -> float:
        """Seconds that a request whose session is idle waits for the pass of other sessions to end."""
        return self._queue.value

    @property
    def margin(self) -> float:
        """Seconds before the estimated end of a verifier pass by which a draft should have arrived.

        The pass may end earlier than estimated. The margin is at most half a verifier pass.
        """
        return min(_EARLY + _SPREADS * self._error.value, self.verify(0) / 2)

    @property
    def draft_known(self) -> bool:
        return self._draft.weight > 0.0

    def draft(self, branches: int = 1) -> float:
        """Seconds of one draft step that reads one token for each of `branches` branches."""
        wider = self._wider.value if self._wider.weight else _ASSUMED_WIDER * self._draft.value
        return max(LEAST, self._draft.value + (branches - 1) * wider)

    @property
    def wider(self) -> float:
        """Share of the time of a draft step that another branch adds to it, of earlier texts until some such steps were
        measured; 0.0 if none were."""
        if self._wider.weight < _WIDER_KNOWN:
            return self._wider_before
        return self._wider.value / max(LEAST, self._draft.value)

    def reading(self, tokens: int) -> float:
        """Seconds that a draft step takes longer because it reads so many tokens beyond one for each branch."""
        return tokens * self._reading.value

    def self_continued(self, seconds: float, forced: int, tokens: int, judged: int) -> None:
        """Learn from a self-continuation step that read `forced` forced tokens before its own, and committed `tokens`,
        of `judged` that the target's head predicted. `seconds`: of the pass, and of the head."""
        if not judged:
            self.verified(forced, seconds)
        self._alone_tokens.learn(tokens)
        self._alone_judged.learn(judged)
        self._alone_step.learn(max(LEAST, seconds - self._reading_forced(forced)))

    def by_itself(self, forced: int = 0) -> tuple[float, float]:
        """Seconds of a self-continuation step, and the tokens that it commits: 1 unless the target's head predicts.

        `forced`: forced tokens that it reads before its own.
        """
        if not self._alone_judged.value:
            return self.verify(forced), 1.0
        return self._alone_step.value + self._reading_forced(forced), self._alone_tokens.value

    def _reading_forced(self, forced: int) -> float:
        return self.verify(forced) - self.verify(0)

    def verify(self, drafts: int) -> float:
        """Seconds of a verifier pass that judges `drafts` draft tokens."""
        if drafts >= len(self._passes):
            curve = self._verify if self._measured else self._reported
            if not self._passes:  # a wider pass never counts as faster, however noisy what was measured
                self._passes = rising(max(LEAST, curve.at(each)) for each in range(NARROW))
            while drafts >= len(self._passes):
                self._passes.append(max(self._passes[-1], curve.at(len(self._passes))))
        return self._passes[drafts]

    @property
    def alone(self) -> float:
        """Seconds of an unmeasured pass without draft tokens: the reported time, if passes with drafts are slower.

        What is measured of these alone says too little of it.
        """
        reported = self._reported.at(0)
        return min(self.verify(0), reported) if reported else self.verify(0)

    @property
    def is_shared(self) -> bool:
        """Whether other sessions usually share the verifier passes of this one."""
        return self._sessions.value >= _SHARED

    def cost(self, drafts: int) -> float:
        """Seconds of a verifier pass if all sessions that share it had `drafts` draft tokens each.

        Where sessions share passes, each draft token delays all of them. If every drafter counted only its own delay,
        all would send too many draft tokens, and each would be slower.
        """
        if not self.is_shared:
            return self.verify(drafts)
        if drafts not in self._costs:
            self._costs[drafts] = self._shared_cost(drafts)
        return self._costs[drafts]

    def _shared_cost(self, drafts: int) -> float:
        # From the reported times, because the passes measured here include the other sessions' draft tokens.
        sessions, usual = self._sessions.value, self._judged.value
        width = self._width.value or sessions * (1.0 + usual)
        more = self._stated.at(width + sessions * (drafts - usual)) - self._stated.at(width)
        return max(0.1 * self.verify(0), self.verify(round(usual)) + more)

    def drafted(self, branches: int, seconds: float) -> None:
        """Take in a draft step that read one token for each of `branches` branches."""
        if branches > 1 and self._draft.weight:
            self._wider.learn(max(0.0, seconds - self._draft.value) / (branches - 1))
        else:
            self._draft.learn(seconds / (1.0 + (branches - 1) * _ASSUMED_WIDER))

    def read(self, more: int, branches: int, seconds: float) -> None:
        """Take in a draft step that read `more` tokens beyond one for each of `branches` branches."""
        self._reading.learn(max(0.0, seconds - self.draft(branches)) / more)

    def exchanged(self, seconds: float, queue: float, forward: float) -> None:
        """Take in the time of one exchange, and the parts of it that the verifier reports as waiting and as passes."""
        self._links.append(max(0.0, seconds - queue - forward))
        self.link = sorted(self._links)[int(_LINK_QUANTILE * len(self._links))]

    def verified(self, judged: int, forward: float) -> None:
        """Take in a verifier pass of `forward` seconds that judged `judged` draft tokens."""
        self._error.learn(abs(forward - self.verify(judged)) if self._measured else 0.0)
        self._verify.learn(judged, forward)
        self._passes, self._costs, self._measured = [], {}, True

    def shared(self, judged: int, sessions: int | None = None, tokens: int = 0) -> None:
        """Take in how many draft tokens of this session a verifier pass judged, and how many sessions shared it.

        `sessions` None: not known.
        `tokens`: of all sessions in the pass; 0: not known.
        """
        self._costs = {}
        self._judged.learn(judged)
        if sessions is not None:
            self._sessions.learn(sessions)
        if tokens:
            self._width.learn(tokens)

    def queued(self, seconds: float) -> None:
        """Take in how long a request whose session was idle waited for a verifier pass."""
        self._queue.learn(seconds)
