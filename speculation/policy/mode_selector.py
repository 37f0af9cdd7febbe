"""Which mode writes a text the fastest: foreseen before the first token, corrected by what is measured on the way.

The likeliest mode begins. Its rate and the share of its draft tokens that are accepted correct what is foreseen of the
others, too. Another mode takes over where it should be faster by a clear margin and what is left of the text repays the
change. A mode that is not known yet has a turn where it could be much faster at best, and either the text is long
enough to repay a turn that brings nothing, or so much was written that trying costs a trifle of it. When the link has
changed, what was measured over it says nothing any more.

A rate of an earlier run may be of a slow moment of the machine. Where a mode turns out far faster than remembered, the
rates remembered of the others are dropped; and one that is far from what was foreseen is measured again now and then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log, sqrt

from speculation.policy.mode_estimate import (
    REMOTE,
    AcceptanceEstimate,
    PairLatencies,
    RateEstimate,
    estimate,
    rate,
    spread,
)
from speculation.policy.mode_measurement import ENOUGH, TURN, ModeMeasurement

_SOONEST = 12  # tokens of a stretch after which another mode may take over, by how its draft tokens fared
_SHRINK = 12.0  # tokens that what is foreseen counts for beside what is measured
_REMEMBERED = 16.0  # draft tokens that a remembered share accepted counts for
_OFF = 3.0  # times the rate foreseen that is believed at most: tokens that nobody waited for come at any rate
_CLEAR, _CLEAR_AT_BEST = 1.08, 1.2  # times the present rate: that pays a change, that would pay one if it came so well
_CHANGE = 3.0  # passes, and round trips, that a change takes until tokens come as fast as they will
_BEGINS = 1.5  # round trips until drafts from here are on their way as fast as they will be
_TRIAL = 64  # tokens that a trial at the beginning of a text takes: a short rest does not repay going back
_TRIALS = 0.01  # share of all tokens that trying modes at the beginning of texts may cost, for the texts to come
_SURPRISED = 3.0  # turns wanted for each further spread that a rate is away from what was foreseen
_BELIEVED = 48.0  # tokens that a remembered rate counts for at most, so that a surprising one is measured again
_STALE = 1.5  # times a remembered rate that is measured now: it was of a slow moment, and so were the others, maybe
_HOPE = 0.25  # how likely a mode is thought to come out as well as it can
_CHANGED, _CHANGED_MS = 0.4, 5.0  # share of the round trip, and milliseconds (a busy machine is late by some)


def links_differ(one_ms: float, other_ms: float) -> bool:
    """Whether two round trips are those of two links."""
    return abs(one_ms - other_ms) >= max(_CHANGED_MS, _CHANGED * one_ms)


@dataclass(slots=True)
class ModeSelector:
    """Asked before each stretch and on the way, told what was written. `modes`: what there is, at least one."""

    modes: Sequence[str]
    machines: PairLatencies
    drafts: Mapping[str, str] = field(default_factory=dict)  # the draft model's name, by the modes that have one
    priors: Mapping[str, float] = field(default_factory=dict)  # share of its draft tokens accepted, by draft model
    measured_by_mode: dict[str, ModeMeasurement] = field(default_factory=dict)
    written: float = 0.0  # tokens over this link since a mode was last tried that need not be the fastest
    _agreements: dict[str, AcceptanceEstimate] = field(default_factory=dict)  # by draft model
    _trial: tuple[str, str] | None = None  # the mode whose turn it is, and the one that is thought to be faster
    _checks: dict[str, tuple[float, ModeMeasurement]] = field(
        default_factory=dict
    )  # `_off` as remembered; measured since
    _weighed: dict[str, RateEstimate] | None = None

    @property
    def link_ms(self) -> float:
        """The round trip over which modes are measured."""
        return self.machines.link_ms

    @property
    def settled(self) -> str | None:
        """The mode that is thought the fastest; None while it was not measured over this link."""
        best = max(self.modes, key=lambda mode: self._estimates[mode].likely)
        own = self._of(best)
        return best if len(self.modes) == 1 or (own.is_turn and not own.remembered) else None

    def next(self, left: int, mode: str | None = None, written: int = 0) -> str:
        """The mode to write what comes next of a text that may have `left` more tokens.

        `mode`: in which its last `written` tokens were written; None: it begins.
        """
        if len(self.modes) == 1:
            return self.modes[0]
        if mode is None:
            return self._first(left)
        if written < _SOONEST or self._is_on_trial(mode):
            return mode
        others = [each for each in self.modes if each != mode]
        faster = [each for each in others if self._pays(each, mode, left)]
        if faster:
            return min(faster, key=lambda each: self._seconds(each, left))
        repaid = (each for each in others if self._repays_a_turn(each, mode, left))
        return self._tried(next(repaid, mode), mode)

    def measured(self, mode: str, tokens: int, seconds: float, accepted: int = 0, compared: int = 0) -> None:
        """So much was written, and of the draft tokens so many compared with the target's choice. Without `seconds`
        it was not timed."""
        self._weighed = None
        self.written += tokens
        if compared:
            self._agreement(mode).learn(accepted, compared)
        own = self.measured_by_mode.setdefault(mode, ModeMeasurement())
        if seconds > 0.0:
            if own.remembered:
                if own.is_turn:
                    self._checks[mode] = (self._off(mode), ModeMeasurement())
                own.fade(min(1.0, TURN / max(1.0, own.tokens)))
            own.learn(tokens, seconds, accepted, compared)
            self._check(mode, tokens, seconds, accepted, compared)
        elif not own.remembered:
            own.learn(0, 0.0, accepted, compared)

    def _check(self, mode: str, tokens: int, seconds: float, accepted: int, compared: int) -> None:
        """Compare a mode's first turn with what was remembered of it; drop the remembered rates if they are stale. How
        draft tokens fared stays: that does not depend on the machine."""
        if mode not in self._checks:
            return
        before, since = self._checks[mode]
        since.learn(tokens, seconds, accepted, compared)
        if not since.is_turn:
            return
        del self._checks[mode]
        if self._off_of(mode, since) > _STALE * before:
            self.measured_by_mode[mode] = since
            for own in self.measured_by_mode.values():
                if own.remembered:
                    own.tokens = own.seconds = 0.0

    def drafts_in(self, milliseconds: float) -> None:
        """A step of the draft model here takes so long."""
        self.machines, self._weighed = replace(self.machines, draft_ms=milliseconds), None

    def differs(self, round_trip_ms: float) -> bool:
        """Whether this is another link than the one that was measured over."""
        return links_differ(self.link_ms, round_trip_ms)

    def begin(
        self, round_trip_ms: float, remembered: Mapping[str, ModeMeasurement] | None = None, written: float = 0.0
    ) -> None:
        """Forget what was measured: the link has this round trip. `remembered`: what modes came to over such a one,
        with `written`."""
        self.machines, self._weighed = replace(self.machines, link_ms=round_trip_ms), None
        self.measured_by_mode, self.written = dict(remembered or {}), written
        self._checks = {}

    def why(self) -> str:
        """What was measured and what is expected, in words."""
        if len(self.modes) == 1:
            return f"there is only {self.modes[0]}"
        ranked = sorted(self.modes, key=self._shown, reverse=True)
        accepted = {name: each.likely for name, each in self._agreements.items() if each.compared}
        shares = "".join(f", {share:.0%} of the draft tokens of {name} accepted" for name, share in accepted.items())
        return f"{', '.join(map(self._said, ranked))} tokens/s at a round trip of {self.link_ms:.1f} ms{shares}"

    def _shown(self, mode: str) -> float:
        """The rate that `why` gives."""
        own = self._of(mode)
        return own.rate if own.is_turn else self._estimates[mode].likely

    def _said(self, mode: str) -> str:
        own = self._of(mode)
        if own.is_turn:
            return f"{mode} {'remembered' if own.remembered else 'measured'} {self._shown(mode):.1f}"
        low, likely, high = self._estimates[mode]
        return f"{mode} expected {likely:.1f} ({low:.0f} to {high:.0f})"

    def _first(self, left: int) -> str:
        """The mode to begin a text of so many tokens with."""
        known = [each for each in self.modes if self._of(each).is_turn]
        usual = min(known or self.modes, key=lambda each: self._seconds(each, left))
        best = min(self.modes, key=lambda each: self._seconds(each, left))
        # Of the best of several estimates too much is expected, and most so where nothing was measured.
        clear = _CLEAR_AT_BEST if known and not self._of(best).is_turn else _CLEAR
        if best != usual and clear * self._seconds(best, left) < self._seconds(usual, left):
            return best
        for other in self.modes:
            if known and other != usual and self._could_win(other, usual):
                rate_now, then = self._estimates[usual].likely, self._estimates[other].likely
                lost = min(left, _TRIAL) * max(0.0, rate_now / then - 1.0) + rate_now * self._change_seconds()
                if lost <= _TRIALS * self.written:
                    return self._tried(other, usual)
        return usual

    def _tried(self, other: str, usual: str) -> str:
        """`other`, which has a turn now although `usual` is thought to be faster."""
        if other != usual:
            self.written, self._weighed, self._trial = 0.0, None, (other, usual)
            self.measured_by_mode.pop(other, None)  # doubted, or it would not be tried
        return other

    def _is_on_trial(self, mode: str) -> bool:
        """Whether its turn is not over, and may still show that it is the fastest."""
        if self._trial is None or self._trial[0] != mode:
            return False
        if self._of(mode).tokens < _TRIAL and self._could_win(*self._trial):
            return True
        self._trial = None
        return False

    def _seconds(self, mode: str, left: int) -> float:
        """What so many tokens should take from the beginning of a stretch on."""
        begins = _BEGINS * self.machines.link_ms if mode == REMOTE else 0.0
        return begins / 1e3 + left / self._estimates[mode].likely

    def _pays(self, other: str, mode: str, left: int) -> bool:
        """Whether `other` should take over from `mode`."""
        now, change = self._estimates[mode], self._change_seconds()
        # The present rate, should it have been measured in a slow moment.
        doubted = now.likely * exp(spread(mode, self.machines) * self._unknown(mode) / 2)
        return _CLEAR * (change + self._seconds(other, left)) < left / doubted

    def _repays_a_turn(self, other: str, mode: str, left: int) -> bool:
        """Whether so long a text repays a turn of `other`, which may bring nothing."""
        if not self._of(mode).is_turn or not self._could_win(other, mode):
            return False
        now, then, change = self._estimates[mode], self._estimates[other], self._change_seconds()
        lost = TURN * max(0.0, 1.0 / then.likely - 1.0 / now.likely) + 2.0 * change
        return _HOPE * left * (1.0 / now.likely - 1.0 / then.high) > lost

    def _could_win(self, other: str, mode: str) -> bool:
        """Whether a turn of `other` could show that it is clearly faster than `mode`."""
        return not self._is_known(other) and self._high(other) > _CLEAR_AT_BEST * self._estimates[mode].likely

    def _is_known(self, mode: str) -> bool:
        """Whether what was measured is enough to rule out more: the less it was foreseen, the more is wanted."""
        own = self._of(mode)
        if not own.is_turn:
            return False
        surprise = abs(log(self._off(mode))) / spread(mode, self.machines)
        wanted = TURN * max(1.0, _SURPRISED * (surprise - 1.0))
        return min(own.tokens, _BELIEVED) >= wanted if own.remembered else own.tokens >= min(wanted, _TRIAL)

    def _high(self, mode: str) -> float:
        """What a mode may make at best."""
        foreseen = estimate(mode, self.machines, self._agreement(mode))
        return self._estimates[mode].high if self._off(mode) >= 1.0 else foreseen.likely

    def _change_seconds(self) -> float:
        """What it takes to go on in another mode: it reads the text, and asks for it."""
        a_pass = self.machines.pass_ms[0] if self.machines.pass_ms else 0.0
        return _CHANGE * (self.machines.link_ms + a_pass) / 1e3

    @property
    def _estimates(self) -> dict[str, RateEstimate]:
        """Of every mode, by all that is known by now."""
        if self._weighed is None:
            self._weighed = {mode: self._estimate(mode) for mode in self.modes}
        return self._weighed

    def _estimate(self, mode: str) -> RateEstimate:
        """What is foreseen, times what came of it beside what was foreseen for it."""
        agreement, own = self._agreement(mode), self._of(mode)
        foreseen = estimate(mode, self.machines, agreement)
        if own.tokens < ENOUGH:
            return foreseen
        likely = self._off(mode) * foreseen.likely
        unknown = self._unknown(mode)
        low, high = ((bound / foreseen.likely) ** unknown for bound in (foreseen.low, foreseen.high))
        return RateEstimate(likely * low, likely, likely * high)

    def _off(self, mode: str) -> float:
        """What came of a mode as a multiple of what was foreseen by the draft tokens that were accepted meanwhile."""
        return self._off_of(mode, self._of(mode))

    def _off_of(self, mode: str, own: ModeMeasurement) -> float:
        if own.tokens < ENOUGH:
            return 1.0
        then = replace(self._agreement(mode), accepted=own.accepted, compared=own.compared)
        foreseen = rate(mode, self.machines, then.likely)
        shrink = _SHRINK / foreseen
        return min(_OFF, max(1.0 / _OFF, (own.tokens / foreseen + shrink) / (own.seconds + shrink)))

    def _unknown(self, mode: str) -> float:
        """Share of the doubt about what is foreseen that measuring has left."""
        tokens = self._of(mode).tokens
        return sqrt(_SHRINK / (_SHRINK + tokens)) if tokens >= ENOUGH else 1.0

    def _of(self, mode: str) -> ModeMeasurement:
        return self.measured_by_mode.get(mode) or ModeMeasurement()

    def _agreement(self, mode: str) -> AcceptanceEstimate:
        """Of the draft model of a mode: two modes with one model share it."""
        name = self.drafts.get(mode, mode)
        if name not in self._agreements:
            self._agreements[name] = (
                AcceptanceEstimate(self.priors[name], _REMEMBERED) if name in self.priors else AcceptanceEstimate()
            )
        return self._agreements[name]
