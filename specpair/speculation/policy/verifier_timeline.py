"""Predicts when the verifier will be free, and how long the committed text will be by then.

All times are seconds on the drafter's clock. The drafter learns of events at the verifier half a round trip later.
A step here is a self-continuation step: a verifier pass without draft tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import NamedTuple

from specpair.speculation.draft import Draft
from specpair.speculation.policy.schedule import UNSAID, RejectionPolicy
from specpair.speculation.policy.timing import LatencyModel

_LONG_AGO = -1e9  # seconds; stands for "the verifier expects no draft"


@dataclass(eq=False, slots=True)
class InFlightDraft:
    """A draft under way to the verifier, with fields of its verify request. Times in seconds."""

    draft: Draft  # from the position on that was known to be committed when it was sent
    sent_at: float
    policy: RejectionPolicy = UNSAID  # what the request states
    stale: bool = False  # the text committed since has left the draft
    idle: float = 0.0  # how long the verifier will have waited when it arrives, with nothing else to do
    rest: Draft = field(init=False)  # what goes beyond the committed text
    _left: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._go_on_with(self.draft)

    def committed(self, position: int, token: int) -> None:
        """Take in a committed token, which makes the draft stale if it has only others there."""
        if self.stale or position != self.rest.position or not len(self.rest):
            return
        rest = self.rest.fresh([token])
        if rest is None:
            self.stale = True
        else:
            self._go_on_with(rest)

    @property
    def end(self) -> int:
        """The position behind the likeliest chain of the draft tokens beyond the committed text."""
        return self.rest.position + len(self._left) - 1

    def fresh(self, position: int) -> int:
        """Draft tokens that a pass judges if the text has `position` tokens by then, as the draft begins."""
        return self._left[position - self.rest.position]

    def _go_on_with(self, rest: Draft) -> None:
        self.rest, self._left = rest, rest.left


class PassStart(NamedTuple):
    """When a pass would start, in seconds, and how many tokens the text has by then."""

    at: float
    position: int


class _PassEnd(NamedTuple):
    """The state of the verifier when a pass ends."""

    at: float
    position: int  # committed tokens
    draft_due: float  # when it expects a draft: within half a step of that, it starts no step
    self_continue: bool  # whether it self-continues from here
    forced: int = 0  # committed tokens at the end that no pass has read: the next one does


class VerifierTimeline:
    """Follows the verifier from its last known state through the drafts in flight."""

    def __init__(self, latencies: LatencyModel, self_continue: bool, position: int) -> None:
        """`position`: committed tokens."""
        self.drafts_in_flight: list[InFlightDraft] = []  # in the order in which they were sent
        self.self_continue = self_continue  # as of the last response
        self._latencies = latencies
        self._heard_at, self._position, self.forced = 0.0, position, 0
        self._draft_due = -latencies.link / 2  # when the verifier expects a draft
        # A cache: the moment of the computation, and the end of all drafts in flight.
        self._end_of_all: tuple[float, _PassEnd] | None = None

    def news(self, position: int, now: float, forced: int = 0) -> None:
        """Take in that the committed text has `position` tokens, the last `forced` of which no pass has read."""
        self._heard_at, self._position, self.forced = now, position, forced
        self._end_of_all = None

    def expects(self, next_in: float | None, now: float) -> None:
        """Set when the verifier expects the next draft: `next_in` after it sent the response that came now.

        None: it expects no draft.
        """
        self._draft_due = _LONG_AGO if next_in is None else now - self._latencies.link / 2 + next_in
        self._end_of_all = None

    def sent(self, in_flight_draft: InFlightDraft) -> None:
        self.drafts_in_flight.append(in_flight_draft)
        self._end_of_all = None

    def arrived(self, in_flight_draft: InFlightDraft) -> None:
        index = self.drafts_in_flight.index(in_flight_draft)
        for earlier in self.drafts_in_flight[:index]:  # their responses were overtaken on the way back
            earlier.policy = earlier.policy._replace(self_continue=in_flight_draft.policy.self_continue)
        del self.drafts_in_flight[index]
        self.self_continue = bool(in_flight_draft.policy.self_continue)
        self._end_of_all = None

    def committed(self, position: int, token: int) -> None:
        """Take in a committed token: mark drafts with another token at `position` as stale."""
        for in_flight_draft in self.drafts_in_flight:
            in_flight_draft.committed(position, token)
        self._end_of_all = None

    def starts(self, send_at: Sequence[float], now: float) -> list[PassStart]:
        """For each moment of `send_at`, the pass start for a draft sent then, if all drafts in flight are accepted."""
        half, end = self._latencies.link / 2, self._end(now)
        starts = []
        for at in send_at:
            free, position = self._self_continued(end, at + half, now - half)
            starts.append(PassStart(max(free, at + half), position))
        return starts

    def is_late(self, now: float) -> bool:
        """Whether the verifier's next message is overdue by more than half a step, so `starts` is not reliable now."""
        half, step = self._latencies.link / 2, self._latencies.verify(0)
        end = self._end_of_drafts(half, -inf)
        due = (
            end.at
            if self.drafts_in_flight
            else self._step_starts(end, end.at) + self._latencies.by_itself(end.forced)[0]
        )
        return now - half > due + step / 2

    def waits(self, now: float) -> bool:
        """Whether a draft sent now would reach a verifier that is idle until a draft arrives."""
        if self.drafts_in_flight or not self.self_continue:
            return not self.drafts_in_flight
        half, end = self._latencies.link / 2, self._end(now)
        free, _ = self._self_continued(end, now + half, now - half)
        return free <= now + half < self._step_starts(end, free)

    def idle(self, now: float) -> float:
        """Seconds that the verifier will have been idle when a draft sent now reaches it."""
        if not self.waits(now):
            return 0.0
        return max(0.0, now + self._latencies.link / 2 - self._end(now).at)

    def _end(self, now: float) -> _PassEnd:
        """The verifier after all drafts in flight. An end more than half a round trip ago would be known."""
        if self._end_of_all is None or self._end_of_all[0] != now:
            half = self._latencies.link / 2
            self._end_of_all = now, self._end_of_drafts(half, now - half)
        return self._end_of_all[1]

    def _end_of_drafts(self, half: float, known_until: float) -> _PassEnd:
        """The verifier after all drafts in flight, the passes of which end at `known_until` or later."""
        end = _PassEnd(self._heard_at - half, self._position, self._draft_due, self.self_continue, self.forced)
        for sent in self.drafts_in_flight:
            self_continue = bool(sent.policy.self_continue)
            if sent.stale:
                end = end._replace(self_continue=self_continue)
                continue
            arrival, ends = sent.sent_at + half, sent.end
            free, position = self._self_continued(end, arrival, known_until)
            forced = end.forced if position == end.position else 0
            if ends >= position:
                took, forced = self._latencies.verify(sent.fresh(position) + forced), 0
                free, position = max(max(free, arrival) + took, known_until), ends + 1
            due = free + (0.0 if len(sent.draft) else sent.policy.next_in or 0.0)
            end = _PassEnd(free, position, due, self_continue, forced)
        return end

    def _self_continued(self, end: _PassEnd, until: float, known_until: float) -> PassStart:
        """When the steps that the verifier starts before `until` are over, and how many tokens the text has by then.

        `end`: the verifier before them. A step that has begun ends before anything else begins; the first one ends at
        `known_until` or later.
        """
        free, position = end.at, end.position
        step, tokens = self._latencies.by_itself()
        if not end.self_continue or until <= self._step_starts(end, free):
            return PassStart(free, position)
        first, _ = self._latencies.by_itself(end.forced)
        free, position = max(self._step_starts(end, free) + first, known_until), position + round(tokens)
        for until_then in (min(until, end.draft_due - step / 2), until):  # before it waits for a draft, and after
            steps = max(0, ceil((until_then - free) / step))
            free, position = free + steps * step, position + round(steps * tokens)
            begins = self._step_starts(end, free)
            if until <= begins:
                break
            if begins > free:
                free, position = begins + step, position + round(tokens)
        return PassStart(free, position)

    def _step_starts(self, end: _PassEnd, since: float) -> float:
        """When a verifier that is free since `since` starts a self-continuation step, unless a draft comes."""
        half_pass = self._latencies.verify(0) / 2
        return end.draft_due + half_pass if abs(since - end.draft_due) < half_pass else since
