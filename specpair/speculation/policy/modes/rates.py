"""Tokens per second of each mode: estimated at first, corrected by measurements over the present link.

The measured rate and acceptance rate of a mode also correct the estimates of the others. When the link changes,
measurements over the old link are dropped. A remembered rate may come from a slow moment of the machine. Where a mode
turns out far faster than remembered, the remembered rates of the others are dropped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log, sqrt
from operator import itemgetter

from specpair.speculation.policy.modes.estimate import (
    ENOUGH,
    LOOKUP,
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

_SHRINK = 12.0  # tokens that the estimate counts for beside the measured ones
_REMEMBERED = 16.0  # draft tokens that a remembered acceptance rate counts for
_GREATEST_RATIO = 3.0  # measured over estimated rate is clipped to this: a burst of waiting tokens has any rate
_SURPRISED = 3.0  # further turns that must be measured for each spread by which a rate is off its estimate
_BELIEVED = 48.0  # tokens that a remembered rate counts for at most, so that a surprising one is measured again
_STALE = 1.5  # a rate this many times the remembered one shows that the remembered rates are from a slow moment
TRIAL = 64  # tokens of a trial at the beginning of a text; a short rest does not repay changing back
# Round trips that differ by this share and by these seconds (a busy machine adds some) are of two links.
_CHANGED, _CHANGED_BY = 0.4, 0.005


def links_differ(one: float, other: float) -> bool:
    """Whether two round trips, in seconds, are so different that they are of two links."""
    return abs(one - other) >= max(_CHANGED_BY, _CHANGED * one)


@dataclass(slots=True)
class ModeRates:
    """The rates of the available modes."""

    modes: Sequence[str]  # at least one
    machines: PairLatencies
    drafts: Mapping[str, str] = field(default_factory=dict)  # name of the draft model, by mode
    priors: Mapping[str, float] = field(default_factory=dict)  # remembered acceptance rate, by draft model
    measured_by_mode: dict[str, ModeMeasurement] = field(default_factory=dict)
    only_looks_up: bool = False  # whether `remote` has no draft model, so that LOOKUP takes its place
    _acceptances: dict[str, AcceptanceEstimate] = field(default_factory=dict)  # by draft model
    # By mode: `_ratio` of the remembered measurement, and the measurement since.
    _checks: dict[str, tuple[float, ModeMeasurement]] = field(default_factory=dict)
    _cached_estimates: dict[str, RateEstimate] | None = None
    _offered: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._offered = self.modes

    def measured(self, mode: str) -> tuple[float, bool] | None:
        """The tokens per second that were measured in a mode over this link, and whether in an earlier run; None: too
        few tokens were."""
        measurement = self.measurement(mode)
        return (measurement.rate, measurement.remembered) if measurement.is_turn else None

    def add_measurement(self, mode: str, tokens: int, seconds: float, accepted: int = 0, compared: int = 0) -> None:
        """Add a stretch of text in which `mode` committed `tokens` tokens in `seconds`.

        Where `seconds` is 0, the stretch was not timed, and only the acceptance rate is learnt from it.
        `compared`: how many of its draft tokens were compared with the target's choice;
        `accepted`: how many of those were accepted.

        Of LOOKUP, the acceptance rate is each text's own (`looks_up`).
        """
        self._cached_estimates = None
        if compared and mode != LOOKUP:
            self._acceptance(mode).learn(accepted, compared)
        measurement = self.measured_by_mode.setdefault(mode, ModeMeasurement())
        if seconds > 0.0:
            if measurement.remembered:
                if measurement.is_turn:
                    self._checks[mode] = (self._ratio(mode), ModeMeasurement())
                measurement.fade(min(1.0, TURN / max(1.0, measurement.tokens)))
            measurement.learn(tokens, seconds, accepted, compared)
            if mode in self._checks:
                self._checks[mode][1].learn(tokens, seconds, accepted, compared)
                self._check(mode, *self._checks[mode])
        elif not measurement.remembered:
            measurement.learn(0, 0.0, accepted, compared)

    def _check(self, mode: str, before: float, since: ModeMeasurement) -> None:
        """Compare a mode's first turn with its remembered ratio, and drop all remembered rates if they are stale.

        Acceptance rates stay, because they do not depend on the speed of the machine.
        """
        if not since.is_turn:
            return
        del self._checks[mode]
        if self._ratio(mode, since) > _STALE * before:
            self.measured_by_mode[mode] = since
            for measurement in self.measured_by_mode.values():
                if measurement.remembered:
                    measurement.tokens = measurement.seconds = 0.0

    def drafts_in(self, seconds: float) -> None:
        """Take in the seconds of a draft step on the drafter's machine."""
        self.machines, self._cached_estimates = replace(self.machines, draft=seconds), None

    def looks_up(self, found: AcceptanceEstimate | None) -> None:
        """Take in how many tokens of the present text are found by lookup; None: nothing is looked up."""
        others = [mode for mode in self._offered if found is None or mode != REMOTE or not self.only_looks_up]
        self.modes = others if found is None else [*others, LOOKUP]
        if found is not None:
            self._acceptances[LOOKUP] = found
        self._cached_estimates = None

    def begin(self, round_trip: float, remembered: Mapping[str, ModeMeasurement] | None = None) -> None:
        """Start over on a link with this round trip. `remembered`: earlier measurements over such a link."""
        self.machines, self._cached_estimates = replace(self.machines, link=round_trip), None
        self.measured_by_mode, self._checks = dict(remembered or {}), {}

    def forget(self, mode: str) -> None:
        """Drop the measurement of a mode, which is measured anew."""
        self.measured_by_mode.pop(mode, None)
        self._cached_estimates = None

    def why(self) -> str:
        """The measured and estimated rates, in words."""
        if len(self.modes) == 1:
            return f"there is only {self.modes[0]}"
        told = []
        for mode in self.modes:
            (low, likely, high), found = self.estimates[mode], self.measured(mode)
            if found is None:
                told.append((likely, f"{mode} expected {likely:.1f} ({low:.0f} to {high:.0f})"))
            else:
                told.append((found[0], f"{mode} {'remembered' if found[1] else 'measured'} {found[0]:.1f}"))
        ranked = [words for _, words in sorted(told, key=itemgetter(0), reverse=True)]
        accepted = {name: each.likely for name, each in self._acceptances.items() if each.compared}
        shares = "".join(
            f", {share:.0%} of the {'tokens found by lookup' if name == LOOKUP else f'draft tokens of {name} accepted'}"
            for name, share in accepted.items()
        )
        return f"{', '.join(ranked)} tokens/s at a round trip of {1e3 * self.machines.link:.1f} ms{shares}"

    def expected_rate(self, step: float, accepted: float) -> float:
        """Tokens per second to expect of REMOTE with another draft model, before it is measured.

        `step`: its draft step, as a multiple of this one's.
        `accepted`: the acceptance rate, 0 to 1.
        """
        draft = None if self.machines.draft is None else step * self.machines.draft
        return rate(REMOTE, replace(self.machines, draft=draft), accepted)

    def is_known(self, mode: str) -> bool:
        """Whether the mode needs no trial. The further its rate is off the estimate, the more tokens that takes."""
        measurement = self.measurement(mode)
        if not measurement.is_turn:
            return False
        surprise = abs(log(self._ratio(mode))) / spread(mode, self.machines)
        wanted = TURN * max(1.0, _SURPRISED * (surprise - 1.0))
        if measurement.remembered:
            return min(measurement.tokens, _BELIEVED) >= wanted
        return measurement.tokens >= min(wanted, TRIAL)

    def high(self, mode: str) -> float:
        """The upper bound of the mode's tokens per second, for which a trial may pay.

        What lookups find is seen without a trial, so of LOOKUP it is the estimate.
        """
        if self._ratio(mode) >= 1.0 and mode != LOOKUP:
            return self.estimates[mode].high
        return estimate(mode, self.machines, self._acceptance(mode)).likely

    @property
    def estimates(self) -> dict[str, RateEstimate]:
        """The present estimate of every mode."""
        if self._cached_estimates is None:
            self._cached_estimates = {mode: self._estimate(mode) for mode in self.modes}
        return self._cached_estimates

    def _estimate(self, mode: str) -> RateEstimate:
        """The estimate by latencies and acceptance rate, scaled by the ratio of the measured to the estimated rate."""
        acceptance, measurement = self._acceptance(mode), self.measurement(mode)
        prior = estimate(mode, self.machines, acceptance)
        if measurement.tokens < ENOUGH:
            return RateEstimate(*(self._speed(mode) * each for each in prior))
        likely = self._ratio(mode) * prior.likely
        unknown = self.unknown(mode)
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
        if TARGET in self.modes and self.measurement(TARGET).tokens >= ENOUGH:
            return self._ratio(TARGET)
        return sqrt(min(1.0, *(self._ratio(other) for other in self.modes if other not in (mode, TARGET)), 1.0))

    def _ratio(self, mode: str, since: ModeMeasurement | None = None) -> float:
        """The measured rate as a multiple of the rate estimated for the acceptance rate during the measurement.

        `since`: in place of all that was measured.
        """
        measurement = since or self.measurement(mode)
        if measurement.tokens < ENOUGH:
            return 1.0
        then = replace(self._acceptance(mode), accepted=measurement.accepted, compared=measurement.compared)
        prior = rate(mode, self.machines, then.likely)
        shrink = _SHRINK / prior
        ratio = (measurement.tokens / prior + shrink) / (measurement.seconds + shrink)
        return min(_GREATEST_RATIO, max(1.0 / _GREATEST_RATIO, ratio))

    def unknown(self, mode: str) -> float:
        """Share of the estimate's uncertainty, 0 to 1, that the measurement leaves; 1.0 while it is too short."""
        tokens = self.measurement(mode).tokens
        return sqrt(_SHRINK / (_SHRINK + tokens)) if tokens >= ENOUGH else 1.0

    def measurement(self, mode: str) -> ModeMeasurement:
        return self.measured_by_mode.get(mode) or ModeMeasurement()

    def _acceptance(self, mode: str) -> AcceptanceEstimate:
        """The acceptance estimate of the mode's draft model. Two modes with one draft model share it."""
        name = self.drafts.get(mode, mode)
        if name not in self._acceptances:
            prior = (self.priors[name], _REMEMBERED) if name in self.priors else ()
            self._acceptances[name] = AcceptanceEstimate(*prior)
        return self._acceptances[name]
