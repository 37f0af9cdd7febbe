"""Select the fastest mode for a text: estimated before the first token, corrected by measurements on the way.

The mode with the best estimate begins. Its measured rate and acceptance rate also correct the estimates of the others.
Another mode takes over where it should be faster by a clear margin and the rest of the text repays the change. A mode
without measurement gets a trial where its upper bound is much faster, and either the text is long enough to repay a
trial that gains nothing, or the trial costs only a trifle of what was written. When the link changes, measurements over
the old link are dropped.

A remembered rate may come from a slow moment of the machine. Where a mode turns out far faster than remembered, the
remembered rates of the others are dropped. A mode whose rate is far from its estimate is measured again now and then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log, sqrt

from specpair.speculation.policy.modes.estimate import (
    ENOUGH,
    REMOTE,
    TARGET,
    TURN,
    AcceptanceEstimate,
    ModeMeasurement,
    PairLatencies,
    RateEstimate,
    estimate,
    rate,
    spread,
)

_SOONEST = 12  # tokens of a stretch after which another mode may take over
_SHRINK = 12.0  # tokens that the estimate counts for beside the measured ones
_REMEMBERED = 16.0  # draft tokens that a remembered acceptance rate counts for
_GREATEST_RATIO = 3.0  # measured over estimated rate is clipped to this: a burst of waiting tokens has any rate
_CLEAR, _CLEAR_AT_BEST = 1.08, 1.2  # how many times the present rate a likely rate, and an upper bound, must be
_CHANGE = 3.0  # verifier passes, and as many round trips, that a change of mode costs
_BEGINS = 1.5  # round trips until the remote mode is at full speed
_TRIAL = 64  # tokens of a trial at the beginning of a text; a short rest does not repay changing back
_TRIALS = 0.01  # share of all tokens that trials at the beginning of texts may cost, for the benefit of later texts
_SURPRISED = 3.0  # further turns that must be measured for each spread by which a rate is off its estimate
_BELIEVED = 48.0  # tokens that a remembered rate counts for at most, so that a surprising one is measured again
_STALE = 1.5  # a rate this many times the remembered one shows that the remembered rates are from a slow moment
_HOPE = 0.25  # assumed chance that a mode reaches its upper bound
# Round trips that differ by this share and by these seconds (a busy machine adds some) are of two links.
_CHANGED, _CHANGED_BY = 0.4, 0.005


def links_differ(one: float, other: float) -> bool:
    """Whether two round trips, in seconds, are so different that they are of two links."""
    return abs(one - other) >= max(_CHANGED_BY, _CHANGED * one)


@dataclass(slots=True)
class ModeSelector:
    """Selects the mode of each stretch from measurements. `modes`: the available modes, at least one."""

    modes: Sequence[str]
    machines: PairLatencies
    drafts: Mapping[str, str] = field(default_factory=dict)  # name of the draft model, by mode
    priors: Mapping[str, float] = field(default_factory=dict)  # remembered acceptance rate, by draft model
    measured_by_mode: dict[str, ModeMeasurement] = field(default_factory=dict)
    written: float = 0.0  # tokens over this link since the last trial of a mode
    _acceptances: dict[str, AcceptanceEstimate] = field(default_factory=dict)  # by draft model
    _unread: int = 0  # as `next` was told
    _trial: tuple[str, str] | None = None  # the mode on trial, and the mode with the best estimate
    # By mode: `_ratio` of the remembered measurement, and the measurement since.
    _checks: dict[str, tuple[float, ModeMeasurement]] = field(default_factory=dict)
    _cached_estimates: dict[str, RateEstimate] | None = None

    @property
    def link(self) -> float:
        """The round trip, in seconds, over which modes are measured."""
        return self.machines.link

    @property
    def fastest(self) -> str | None:
        """The mode of the highest estimated tokens per second; None until that mode was measured over this link."""
        best = max(self.modes, key=lambda mode: self._estimates[mode].likely)
        measurement = self._measurement(best)
        return best if len(self.modes) == 1 or (measurement.is_turn and not measurement.remembered) else None

    def expected(self, mode: str) -> RateEstimate:
        """The tokens per second to expect of one of the modes, corrected by what was measured."""
        return self._estimates[mode]

    def measured(self, mode: str) -> tuple[float, bool] | None:
        """The tokens per second that were measured in a mode over this link, and whether in an earlier run; None: too
        few tokens were."""
        measurement = self._measurement(mode)
        return (measurement.rate, measurement.remembered) if measurement.is_turn else None

    def next(self, left: int, mode: str | None = None, written: int = 0, unread: int = 0) -> str:
        """The mode for the next stretch of a text that may have `left` more tokens.

        `mode`: the mode of its last `written` tokens; None: the text begins.
        `unread`: tokens of the text, its prompt included, that the draft model on the drafter's machine would have to
            read in mode `remote`.
        """
        if len(self.modes) == 1:
            return self.modes[0]
        self._unread = unread
        if mode is None:
            return self._first(left)
        trial = self._trial
        if written < _SOONEST or self._is_on_trial(mode):
            return mode
        if trial is not None and trial[0] == mode and self._was_better(trial[1], mode, left):
            return trial[1]
        others = [each for each in self.modes if each != mode]
        faster = [each for each in others if self._pays(each, mode, left)]
        if faster:
            return min(faster, key=lambda each: self._seconds(each, left))
        repaid = (each for each in others if self._repays_a_trial(each, mode, left))
        return self._start_trial(next(repaid, mode), mode)

    def add_measurement(self, mode: str, tokens: int, seconds: float, accepted: int = 0, compared: int = 0) -> None:
        """Add a stretch of text in which `mode` committed `tokens` tokens in `seconds`.

        Where `seconds` is 0, the stretch was not timed, and only the acceptance rate is learnt from it.
        `compared`: how many of its draft tokens were compared with the target's choice;
        `accepted`: how many of those were accepted.
        """
        self._cached_estimates = None
        self.written += tokens
        if compared:
            self._acceptance(mode).learn(accepted, compared)
        measurement = self.measured_by_mode.setdefault(mode, ModeMeasurement())
        if seconds > 0.0:
            if measurement.remembered:
                if measurement.is_turn:
                    self._checks[mode] = (self._ratio(mode), ModeMeasurement())
                measurement.fade(min(1.0, TURN / max(1.0, measurement.tokens)))
            measurement.learn(tokens, seconds, accepted, compared)
            self._check(mode, tokens, seconds, accepted, compared)
        elif not measurement.remembered:
            measurement.learn(0, 0.0, accepted, compared)

    def _check(self, mode: str, tokens: int, seconds: float, accepted: int, compared: int) -> None:
        """Compare a mode's first turn with its remembered measurement, and drop all remembered rates if they are stale.

        Acceptance rates stay, because they do not depend on the speed of the machine.
        """
        if mode not in self._checks:
            return
        before, since = self._checks[mode]
        since.learn(tokens, seconds, accepted, compared)
        if not since.is_turn:
            return
        del self._checks[mode]
        if self._ratio_of(mode, since) > _STALE * before:
            self.measured_by_mode[mode] = since
            for measurement in self.measured_by_mode.values():
                if measurement.remembered:
                    measurement.tokens = measurement.seconds = 0.0

    def drafts_in(self, seconds: float) -> None:
        """Take in the seconds of a draft step on the drafter's machine."""
        self.machines, self._cached_estimates = replace(self.machines, draft=seconds), None

    def differs(self, round_trip: float) -> bool:
        """Whether this round trip, in seconds, is of another link than the one measured over."""
        return links_differ(self.link, round_trip)

    def begin(
        self, round_trip: float, remembered: Mapping[str, ModeMeasurement] | None = None, written: float = 0.0
    ) -> None:
        """Start over on a link with this round trip. `remembered`, `written`: as measured earlier over such a link."""
        self.machines, self._cached_estimates = replace(self.machines, link=round_trip), None
        self.measured_by_mode, self.written = dict(remembered or {}), written
        self._checks = {}

    def why(self) -> str:
        """The measured and estimated rates, in words."""
        if len(self.modes) == 1:
            return f"there is only {self.modes[0]}"
        ranked = sorted(self.modes, key=self._shown, reverse=True)
        accepted = {name: each.likely for name, each in self._acceptances.items() if each.compared}
        shares = "".join(f", {share:.0%} of the draft tokens of {name} accepted" for name, share in accepted.items())
        return f"{', '.join(map(self._described, ranked))} tokens/s at a round trip of {1e3 * self.link:.1f} ms{shares}"

    def _shown(self, mode: str) -> float:
        """The tokens per second that `why` reports."""
        measurement = self._measurement(mode)
        return measurement.rate if measurement.is_turn else self._estimates[mode].likely

    def _described(self, mode: str) -> str:
        measurement = self._measurement(mode)
        if measurement.is_turn:
            return f"{mode} {'remembered' if measurement.remembered else 'measured'} {self._shown(mode):.1f}"
        low, likely, high = self._estimates[mode]
        return f"{mode} expected {likely:.1f} ({low:.0f} to {high:.0f})"

    def _first(self, left: int) -> str:
        """The mode to begin a text of at most `left` tokens with."""
        known = [each for each in self.modes if self._measurement(each).is_turn]
        usual = min(known or self.modes, key=lambda each: self._seconds(each, left))
        best = min(self.modes, key=lambda each: self._seconds(each, left))
        # The best of several estimates tends to be too high, most of all where nothing was measured.
        clear = _CLEAR_AT_BEST if known and not self._measurement(best).is_turn else _CLEAR
        if best != usual and clear * self._seconds(best, left) < self._seconds(usual, left):
            return best
        if not known:
            return self._start_trial(self._worth_trying(left) if usual == TARGET else usual, usual)
        for other in self.modes:
            if other != usual and self._could_win(other, usual):
                rate_now, then = self._estimates[usual].likely, self._estimates[other].likely
                seconds = self._change_seconds() + self._begins(other)
                lost = min(left, _TRIAL) * max(0.0, rate_now / then - 1.0) + rate_now * seconds
                if lost <= _TRIALS * self.written:
                    return self._start_trial(other, usual)
        return usual

    def _worth_trying(self, left: int) -> str:
        """The mode that drafts and should begin a text of at most `left` tokens although nothing was measured and its
        estimate is not above that of the target alone, since it may be much faster; `target` if there is none.

        A trial at the beginning saves a change of the mode, and the text gains in its whole length. Where the ends
        share no cores, the verifier decodes by itself while no draft pays: `remote` is then expected to be as fast as
        the target alone, and tokens that are looked up in the text may make it faster.
        """
        if self.machines.read is None:
            drafting, alone = (self._estimates[each].likely if each in self.modes else 0.0 for each in (REMOTE, TARGET))
            return REMOTE if self.machines.self_continue and drafting >= alone else TARGET
        others = (each for each in self.modes if each != TARGET and self._could_win(each, TARGET))
        return next(
            (each for each in others if self._gains(each, TARGET, left) > self._change_seconds() + self._begins(each)),
            TARGET,
        )

    def _start_trial(self, other: str, usual: str) -> str:
        """Start a trial of `other`, although `usual` has the better estimate; none if they are the same. Return it."""
        if other != usual:
            self.written, self._cached_estimates, self._trial = 0.0, None, (other, usual)
            self.measured_by_mode.pop(other, None)  # not trusted, or no trial would be needed
        return other

    def _is_on_trial(self, mode: str) -> bool:
        """Whether the trial of `mode` is not over, and may still show that it is the fastest."""
        if self._trial is None or self._trial[0] != mode:
            return False
        if self._measurement(mode).tokens < _TRIAL and self._could_win(*self._trial):
            return True
        self._trial = None
        return False

    def _was_better(self, usual: str, tried: str, left: int) -> bool:
        """Whether a trial that is over leads back to `usual`: by a smaller margin than other changes need, as `tried`
        began as the one with the lower estimate."""
        return self._change_seconds() + self._seconds(usual, left) < self._seconds(tried, left)

    def _seconds(self, mode: str, left: int) -> float:
        """Estimated seconds for `left` tokens from the beginning of a stretch on."""
        return self._begins(mode) + left / self._estimates[mode].likely

    def _begins(self, mode: str) -> float:
        """Seconds that a stretch in `mode` loses at its beginning."""
        if mode != REMOTE:
            return 0.0
        return _BEGINS * self.machines.link + self._unread * (self.machines.read or 0.0)

    def _pays(self, other: str, mode: str, left: int) -> bool:
        """Whether `other` should take over from `mode`."""
        now, change = self._estimates[mode], self._change_seconds()
        # The present rate may have been measured in a slow moment.
        doubted = now.likely * exp(spread(mode, self.machines) * self._unknown(mode) / 2)
        return _CLEAR * (change + self._seconds(other, left)) < left / doubted

    def _repays_a_trial(self, other: str, mode: str, left: int) -> bool:
        """Whether a text with `left` more tokens repays a trial of `other`, which may gain nothing."""
        if not self._measurement(mode).is_turn or not self._could_win(other, mode):
            return False
        return self._gains(other, mode, left) > 2.0 * self._change_seconds() + self._begins(other)

    def _gains(self, other: str, mode: str, left: int) -> float:
        """Seconds that a trial of `other` may be expected to gain in a text with `left` more tokens, without what it
        takes to change the mode."""
        now, then = self._estimates[mode], self._estimates[other]
        lost = TURN * max(0.0, 1.0 / then.likely - 1.0 / now.likely)
        return _HOPE * left * (1.0 / now.likely - 1.0 / then.high) - lost

    def _could_win(self, other: str, mode: str) -> bool:
        """Whether a trial of `other` could show that it is clearly faster than `mode`."""
        return not self._is_known(other) and self._high(other) > _CLEAR_AT_BEST * self._estimates[mode].likely

    def _is_known(self, mode: str) -> bool:
        """Whether the mode needs no trial. The further its rate is off the estimate, the more tokens that takes."""
        measurement = self._measurement(mode)
        if not measurement.is_turn:
            return False
        surprise = abs(log(self._ratio(mode))) / spread(mode, self.machines)
        wanted = TURN * max(1.0, _SURPRISED * (surprise - 1.0))
        if measurement.remembered:
            return min(measurement.tokens, _BELIEVED) >= wanted
        return measurement.tokens >= min(wanted, _TRIAL)

    def _high(self, mode: str) -> float:
        """The upper bound of the mode's tokens per second, for which a trial may pay."""
        if self._ratio(mode) >= 1.0:
            return self._estimates[mode].high
        return estimate(mode, self.machines, self._acceptance(mode)).likely

    def _change_seconds(self) -> float:
        """Seconds that a change of mode costs: requests are sent, and the models of the other mode read the text."""
        passes = self.machines.pass_times
        return _CHANGE * (self.machines.link + (passes[0] if passes else 0.0))

    @property
    def _estimates(self) -> dict[str, RateEstimate]:
        """The present estimate of every mode."""
        if self._cached_estimates is None:
            self._cached_estimates = {mode: self._estimate(mode) for mode in self.modes}
        return self._cached_estimates

    def _estimate(self, mode: str) -> RateEstimate:
        """The estimate by latencies and acceptance rate, scaled by the ratio of the measured to the estimated rate."""
        acceptance, measurement = self._acceptance(mode), self._measurement(mode)
        prior = estimate(mode, self.machines, acceptance)
        if measurement.tokens < ENOUGH:
            return RateEstimate(*(self._speed(mode) * each for each in prior))
        likely = self._ratio(mode) * prior.likely
        unknown = self._unknown(mode)
        low, high = ((bound / prior.likely) ** unknown for bound in (prior.low, prior.high))
        return RateEstimate(likely * low, likely, likely * high)

    def _speed(self, mode: str) -> float:
        """Factor for a mode that was not measured, by the modes that were.

        Its passes are as much slower or faster than reported as those of the target alone: a machine may have been busy
        when its passes were timed, or may be busy now. Of a mode that drafts it is not known whether passes make it
        slower than estimated, which would slow the other one as much, or something of its own: each is taken for half.
        """
        if mode == TARGET:
            return 1.0
        if TARGET in self.modes and self._measurement(TARGET).tokens >= ENOUGH:
            return self._ratio(TARGET)
        return sqrt(min(1.0, *(self._ratio(other) for other in self.modes if other not in (mode, TARGET)), 1.0))

    def _ratio(self, mode: str) -> float:
        """The measured rate as a multiple of the rate estimated for the acceptance rate during the measurement."""
        return self._ratio_of(mode, self._measurement(mode))

    def _ratio_of(self, mode: str, measurement: ModeMeasurement) -> float:
        if measurement.tokens < ENOUGH:
            return 1.0
        then = replace(self._acceptance(mode), accepted=measurement.accepted, compared=measurement.compared)
        prior = rate(mode, self.machines, then.likely)
        shrink = _SHRINK / prior
        return min(
            _GREATEST_RATIO,
            max(1.0 / _GREATEST_RATIO, (measurement.tokens / prior + shrink) / (measurement.seconds + shrink)),
        )

    def _unknown(self, mode: str) -> float:
        """Share of the estimate's uncertainty, 0 to 1, that the measurement leaves; 1.0 while it is too short."""
        tokens = self._measurement(mode).tokens
        return sqrt(_SHRINK / (_SHRINK + tokens)) if tokens >= ENOUGH else 1.0

    def _measurement(self, mode: str) -> ModeMeasurement:
        return self.measured_by_mode.get(mode) or ModeMeasurement()

    def _acceptance(self, mode: str) -> AcceptanceEstimate:
        """The acceptance estimate of the mode's draft model. Two modes with one draft model share it."""
        name = self.drafts.get(mode, mode)
        if name not in self._acceptances:
            self._acceptances[name] = (
                AcceptanceEstimate(self.priors[name], _REMEMBERED) if name in self.priors else AcceptanceEstimate()
            )
        return self._acceptances[name]
