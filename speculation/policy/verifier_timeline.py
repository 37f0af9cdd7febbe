"""What the verifier will be doing when a guess arrives, as far as the drafter can tell.

All times are on the drafter's clock, in milliseconds; what happens at the verifier is known half a round trip later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

from speculation.acceptance.draft_probs import Weights
from speculation.policy.timing import LatencyModel

_LONG_AGO = -1e12  # ms; when a guess was expected of which none is


@dataclass(eq=False, slots=True)
class InFlightDraft:
    """A guess under way."""

    position: int  # tokens that were known to be committed
    drafts: list[int]  # from there on
    sent_at: float
    next_in_ms: float  # what the verifier was told: when to expect the next guess after a miss
    goes_on: bool | None = None  # what it was told: whether to go on by itself from here; None where it never does
    stale: bool = False  # contradicted by what is known since
    found: Sequence[bool] = ()  # of each draft, whether it was looked up in the text
    confidence: Sequence[float] = ()  # of each draft, the drafter's own probability of it
    probs: list[Weights] | None = None  # of each draft, what it was drawn from, where that goes with it

    @property
    def end(self) -> int:
        return self.position + len(self.drafts)


class PassStart(NamedTuple):
    """When the verifier would begin with a guess, and how long the text would be by then."""

    at: float
    position: int


class _End(NamedTuple):
    """The verifier through with something."""

    at: float
    position: int  # of the text
    soonest: float  # when it expects a guess: half a step before and after that, it starts nothing by itself
    goes_on: bool  # whether it starts anything by itself behind that


class VerifierTimeline:
    """Follows the verifier from the last thing that is known of it, through the guesses under way."""

    def __init__(self, times: LatencyModel, goes_on: bool, position: int, next_in_ms: float, now: float) -> None:
        """`goes_on`: the verifier continues by itself. `next_in_ms`: what it was told with the prompt."""
        self.in_flight_drafts: list[InFlightDraft] = []
        self.goes_on = goes_on  # as of the last answer
        self._times = times
        self._heard_at, self._position = now, position
        self._soonest = now - times.link / 2 + next_in_ms  # when the verifier expects a guess
        self._behind: tuple[float, _End] | None = None  # as of when, and of what is under way

    def news(self, position: int, now: float) -> None:
        """The text is known to reach `position`."""
        self._heard_at, self._position = now, position
        self._behind = None

    def expects(self, next_in_ms: float | None, now: float) -> None:
        """The answer that has just come said when the verifier expects a guess after it; None: it does not."""
        self._soonest = _LONG_AGO if next_in_ms is None else now - self._times.link / 2 + next_in_ms
        self._behind = None

    def sent(self, in_flight_draft: InFlightDraft) -> None:
        """A guess is on its way."""
        self.in_flight_drafts.append(in_flight_draft)
        self._behind = None

    def arrived(self, in_flight_draft: InFlightDraft) -> None:
        """Its answer has come."""
        place = self.in_flight_drafts.index(in_flight_draft)
        for earlier in self.in_flight_drafts[:place]:  # overtaken on its way back
            earlier.goes_on = in_flight_draft.goes_on
        del self.in_flight_drafts[place]
        self.goes_on = bool(in_flight_draft.goes_on)
        self._behind = None

    def committed(self, position: int, token: int) -> None:
        """Guesses that say something else at `position` are out of date."""
        for in_flight_draft in self.in_flight_drafts:
            if (
                in_flight_draft.position <= position < in_flight_draft.end
                and in_flight_draft.drafts[position - in_flight_draft.position] != token
            ):
                in_flight_draft.stale = True
        self._behind = None

    def starts(self, send_at: Sequence[float], now: float) -> list[PassStart]:
        """For a guess sent at each of these moments, should all that is under way stand."""
        half, end = self._times.link / 2, self._end(now)
        starts = []
        for at in send_at:
            free, position = self._alone(end, at + half, now - half)
            starts.append(PassStart(max(free, at + half), position))
        return starts

    def is_late(self, now: float) -> bool:
        """Whether something should have been heard of half a step ago: when the verifier is free then, nobody knows."""
        half, step = self._times.link / 2, self._times.verify(0)
        end = self._chain(half, -inf)
        due = end.at if self.in_flight_drafts else self._begins(end, end.at) + step
        return now - half > due + step / 2

    def waits(self, now: float) -> bool:
        """Whether a guess that is sent now finds a verifier that does nothing until one comes."""
        if self.in_flight_drafts or not self.goes_on:
            return not self.in_flight_drafts
        half, end = self._times.link / 2, self._end(now)
        free, _ = self._alone(end, now + half, now - half)
        return free <= now + half < self._begins(end, free)

    def _end(self, now: float) -> _End:
        """The verifier through with what is under way; what ended half a round trip ago would have been heard of."""
        if self._behind is None or self._behind[0] != now:
            half = self._times.link / 2
            self._behind = now, self._chain(half, now - half)
        return self._behind[1]

    def _chain(self, half: float, known_until: float) -> _End:
        """The verifier through with what is under way."""
        end = _End(self._heard_at - half, self._position, self._soonest, self.goes_on)
        for in_flight_draft in self.in_flight_drafts:
            goes_on = bool(in_flight_draft.goes_on)
            if in_flight_draft.stale:
                end = end._replace(goes_on=goes_on)
                continue
            arrival = in_flight_draft.sent_at + half
            free, position = self._alone(end, arrival, known_until)
            if in_flight_draft.end >= position:
                free = max(max(free, arrival) + self._times.verify(in_flight_draft.end - position), known_until)
                position = in_flight_draft.end + 1
            end = _End(free, position, free + (0.0 if in_flight_draft.drafts else in_flight_draft.next_in_ms), goes_on)
        return end

    def _alone(self, end: _End, until: float, known_until: float) -> PassStart:
        """The verifier's own steps in between; one that has begun ends before anything else begins."""
        free, position, step = end.at, end.position, self._times.verify(0)
        if not end.goes_on or until <= self._begins(end, free):
            return PassStart(free, position)
        free, position = max(self._begins(end, free) + step, known_until), position + 1
        for until_then in (min(until, end.soonest - step / 2), until):  # before it waits for a guess, and from then on
            steps = max(0, ceil((until_then - free) / step))
            free, position = free + steps * step, position + steps
            begins = self._begins(end, free)
            if until <= begins:
                break
            if begins > free:
                free, position = begins + step, position + 1
        return PassStart(free, position)

    def _begins(self, end: _End, since: float) -> float:
        """When it takes a step of its own, unless a guess comes; free since then."""
        half_step = self._times.verify(0) / 2
        return end.soonest + half_step if abs(since - end.soonest) < half_step else since
