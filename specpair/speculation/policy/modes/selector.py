"""Selects the fastest mode for a text: by estimates before the first token, then corrected by measurements.

The mode with the best estimate begins. Another mode takes over where it should be faster by a clear margin and the rest
of the text repays the change. A mode without measurement gets a trial where its upper bound is much faster, and either
the text is long enough to repay a trial that gains nothing, or the trial costs only a trifle of what was written. A
mode whose rate is far from its estimate is measured again now and then. `ModeRates` has the rates.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp

from specpair.speculation.policy.modes.estimate import (
    LOOKUP,
    REMOTE,
    TARGET,
    TURN,
    AcceptanceEstimate,
    ModeMeasurement,
    spread,
)
from specpair.speculation.policy.modes.rates import TRIAL, ModeRates

_SOONEST = 12  # tokens of a stretch after which another mode may take over
_CLEAR, _CLEAR_AT_BEST = 1.08, 1.2  # how many times the present rate a likely rate, and an upper bound, must be
_CHANGE = 3.0  # verifier passes, and as many round trips, that a change of mode costs
_BEGINS = 1.5  # round trips until the remote mode is at full speed
_TRIALS = 0.01  # share of all tokens that trials at the beginning of texts may cost, for the benefit of later texts
_HOPE = 0.25  # assumed chance that a mode reaches its upper bound


@dataclass(slots=True)
class ModeSelector:
    """Selects the mode of each stretch from the modes' rates."""

    rates: ModeRates
    written: float = 0.0  # tokens over this link since the last trial of a mode
    _unread: int = 0  # as `next` was told
    _trial: tuple[str, str] | None = None  # the mode on trial, and the mode with the best estimate

    @property
    def fastest(self) -> str | None:
        """The mode of the highest estimated tokens per second; None until that mode was measured over this link."""
        best = max(self.rates.modes, key=lambda mode: self.rates.estimates[mode].likely)
        measurement = self.rates.measurement(best)
        return best if len(self.rates.modes) == 1 or (measurement.is_turn and not measurement.remembered) else None

    def next(
        self,
        left: int,
        mode: str | None = None,
        written: int = 0,
        unread: int = 0,
        found: AcceptanceEstimate | None = None,
    ) -> str:
        """The mode for the next stretch of a text that may have `left` more tokens.

        `mode`: the mode of its last `written` tokens; None: the text begins.
        `unread`: tokens of the text, its prompt included, that the draft model on the drafter's machine would have to
            read in mode `remote`.
        `found`: as for `ModeRates.looks_up`.
        """
        self.rates.looks_up(found)
        if len(self.rates.modes) == 1:
            return self.rates.modes[0]
        self._unread = unread
        if mode is None:
            return self._first(left)
        trial = self._trial
        if written < _SOONEST or self._is_on_trial(mode):
            return mode
        # After a trial, a smaller margin leads back than other changes need: it began with the lower estimate.
        if trial is not None and trial[0] == mode:
            usual = trial[1]
            if self._change_seconds() + self._seconds(usual, left) < self._seconds(mode, left):
                return usual
        others = [each for each in self.rates.modes if each != mode]
        faster = [each for each in others if self._pays(each, mode, left)]
        if faster:
            return min(faster, key=lambda each: self._seconds(each, left))
        repaid = (each for each in others if self._repays_a_trial(each, mode, left))
        return self._start_trial(next(repaid, mode), mode)

    def add_measurement(self, mode: str, tokens: int, seconds: float, accepted: int = 0, compared: int = 0) -> None:
        """As `ModeRates.add_measurement`."""
        self.written += tokens
        self.rates.add_measurement(mode, tokens, seconds, accepted, compared)

    def begin(
        self, round_trip: float, remembered: Mapping[str, ModeMeasurement] | None = None, written: float = 0.0
    ) -> None:
        """As `ModeRates.begin`. `written`: as for this class, earlier over such a link."""
        self.rates.begin(round_trip, remembered)
        self.written = written

    def _first(self, left: int) -> str:
        """The mode to begin a text of at most `left` tokens with."""
        known = [each for each in self.rates.modes if self.rates.measurement(each).is_turn]
        usual = min(known or self.rates.modes, key=lambda each: self._seconds(each, left))
        best = min(self.rates.modes, key=lambda each: self._seconds(each, left))
        # The best of several estimates tends to be too high, most of all where nothing was measured.
        clear = _CLEAR_AT_BEST if known and not self.rates.measurement(best).is_turn else _CLEAR
        if best != usual and clear * self._seconds(best, left) < self._seconds(usual, left):
            return best
        if not known:
            return self._start_trial(self._worth_trying(left) if usual == TARGET else usual, usual)
        for other in self.rates.modes:
            if other != usual and self._could_win(other, usual):
                rate_now, then = self.rates.estimates[usual].likely, self.rates.estimates[other].likely
                seconds = self._change_seconds() + self._begins(other)
                lost = min(left, TRIAL) * max(0.0, rate_now / then - 1.0) + rate_now * seconds
                if lost <= _TRIALS * self.written:
                    return self._start_trial(other, usual)
        return usual

    def _worth_trying(self, left: int) -> str:
        """The drafting mode that should begin a text of at most `left` tokens although unmeasured and estimated no
        faster than the target alone, since it may be much faster; `target` if there is none.

        A trial at the beginning saves a change of the mode, and the text gains in its whole length. Where the ends
        share no cores, the verifier decodes by itself while no draft pays: `remote` is then expected to be as fast as
        the target alone, and tokens that are looked up in the text may make it faster.
        """
        if self.rates.machines.read is None:
            drafting, alone = (
                self.rates.estimates[each].likely if each in self.rates.modes else 0.0 for each in (REMOTE, TARGET)
            )
            return REMOTE if self.rates.machines.self_continue and drafting >= alone else TARGET
        others = (each for each in self.rates.modes if each != TARGET and self._could_win(each, TARGET))
        return next(
            (each for each in others if self._gains(each, TARGET, left) > self._change_seconds() + self._begins(each)),
            TARGET,
        )

    def _start_trial(self, other: str, usual: str) -> str:
        """Start a trial of `other`, although `usual` has the better estimate; none if they are the same. Return it."""
        if other != usual:
            self.written, self._trial = 0.0, (other, usual)
            self.rates.forget(other)  # not trusted, or no trial would be needed
        return other

    def _is_on_trial(self, mode: str) -> bool:
        """Whether the trial of `mode` is not over, and may still show that it is the fastest."""
        if self._trial is None or self._trial[0] != mode:
            return False
        if self.rates.measurement(mode).tokens < TRIAL and self._could_win(*self._trial):
            return True
        self._trial = None
        return False

    def _seconds(self, mode: str, left: int) -> float:
        """Estimated seconds for `left` tokens from the beginning of a stretch on."""
        return self._begins(mode) + left / self.rates.estimates[mode].likely

    def _begins(self, mode: str) -> float:
        """Seconds that a stretch in `mode` loses at its beginning."""
        if mode not in (REMOTE, LOOKUP):
            return 0.0
        reading = self._unread * (self.rates.machines.read or 0.0) if mode == REMOTE else 0.0
        return _BEGINS * self.rates.machines.link + reading

    def _pays(self, other: str, mode: str, left: int) -> bool:
        """Whether `other` should take over from `mode`."""
        now, change = self.rates.estimates[mode], self._change_seconds()
        # The present rate may have been measured in a slow moment.
        doubted = now.likely * exp(spread(mode, self.rates.machines) * self.rates.unknown(mode) / 2)
        return _CLEAR * (change + self._seconds(other, left)) < left / doubted

    def _repays_a_trial(self, other: str, mode: str, left: int) -> bool:
        """Whether a text with `left` more tokens repays a trial of `other`, which may gain nothing."""
        if not self.rates.measurement(mode).is_turn or not self._could_win(other, mode):
            return False
        return self._gains(other, mode, left) > 2.0 * self._change_seconds() + self._begins(other)

    def _gains(self, other: str, mode: str, left: int) -> float:
        """Seconds that a trial of `other` may be expected to gain in a text with `left` more tokens, without what it
        takes to change the mode."""
        now, then = self.rates.estimates[mode], self.rates.estimates[other]
        lost = TURN * max(0.0, 1.0 / then.likely - 1.0 / now.likely)
        return _HOPE * left * (1.0 / now.likely - 1.0 / then.high) - lost

    def _could_win(self, other: str, mode: str) -> bool:
        """Whether a trial of `other` could show that it is clearly faster than `mode`."""
        return (
            not self.rates.is_known(other)
            and self.rates.high(other) > _CLEAR_AT_BEST * self.rates.estimates[mode].likely
        )

    def _change_seconds(self) -> float:
        """Seconds that a change of mode costs: requests are sent, and the models of the other mode read the text."""
        passes = self.rates.machines.pass_times
        return _CHANGE * (self.rates.machines.link + (passes[0] if passes else 0.0))
