"""Feeds the events of one text to the controller, and runs the actions that the controller returns."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from specpair.drafters.run import events
from specpair.drafters.run.events import Verified
from specpair.drafters.run.executors import Executor
from specpair.speculation.acceptance.judge import Decision
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.acceptance.token_sources import (
    TokenMark,
    forced_before,
    last_round,
    last_step,
    passes,
    rounds,
)
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.verifier_timeline import InFlightDraft


class JudgedRounds:
    """Finds the draft of each round of one text. A draft has at most one round."""

    def __init__(self) -> None:
        self._judged: set[InFlightDraft] = set()  # those in flight of which a round is known

    def of(
        self, marks: Sequence[TokenMark], start: int, text: Sequence[int], in_flight: Iterable[InFlightDraft]
    ) -> Iterator[JudgedRound]:
        """The rounds that committed the tokens of `text` from position `start` on, which have these `marks`.

        `in_flight`: the drafts that one of the rounds may have judged. Answers may overtake each other: the draft
        whose answer brought the tokens need not be the one that the first round judged.
        """
        sent = sorted(in_flight, key=lambda each: each.sent_at)
        self._judged &= set(sent)
        for first, accepted, judged in rounds(marks):
            at = start + first
            fits = []
            for each in sent:
                fresh = None if each in self._judged else each.draft.fresh(text[each.draft.position : at])
                if fresh is not None and len(fresh) >= judged and fresh.accepted(text[at : at + accepted]) == accepted:
                    fits.append((fresh, each))
            if fits:  # the verifier judges all that is fresh, unless its pass is full
                fresh, request = min(fits, key=lambda fit: len(fit[0]))
                self._judged.add(request)
                of_it = fresh.first(judged)
                path = of_it.path(text[at : at + accepted])
                known = len(path) == accepted  # else the verifier judged it as a chain
                yield JudgedRound.of(of_it, path, request) if known else JudgedRound(judged, accepted, (), request)
            else:  # its response was lost, for example
                yield JudgedRound(judged, accepted)


class Transcript(Protocol):
    """The text that a run has written. The reactor appends tokens under its lock; others read."""

    known: list[int]  # token ids of the prompt and of all committed tokens
    unread: deque[events.Committed]  # committed, but not passed on to the reader yet
    finish_reason: str | None  # why the text has ended; None: it has not


@dataclass(slots=True)
class PlainTranscript:
    """The transcript of a run without a session over a network. `known`: the text at the start of the run."""

    known: list[int]
    finish_reason: str | None
    unread: deque[events.Committed] = field(default_factory=deque)


class Reactor:
    """Feeds the events of one text to the controller, and has the executor run what the controller decides.

    The executor hands itself over with each event, so the reactor keeps no reference to it. Committed tokens go into
    `text`, and every event is told to the listener. `turn` and `end` are for the thread that reads the text, the
    caller's; `react` is for any thread.
    """

    def __init__(
        self,
        text: Transcript,
        controller: SpeculationController,
        tell: events.Listener,
        clock: Callable[[], float],
        *,
        explained: bool = False,
    ) -> None:
        """`controller`: appends to `text.known`.
        `clock`: returns seconds.
        `explained`: whether the decision on each token is told.
        """
        self._text, self._controller = text, controller
        self._tell, self._clock, self._explained = tell, clock, explained
        # The drafter's probability of each draft token that was sent, by position and token; empty unless explained.
        self._confidence: dict[tuple[int, int | None], float] = {}
        self._rounds = JudgedRounds()
        self._forced = {len(text.known): controller.forced}  # by length of the text, how many of its last tokens are
        self._untold: list[tuple[events.RunEvent, float]] = []  # each with its time; see `_tell_all`
        self._lock = threading.Lock()  # guards all of this object
        self._failure: BaseException | None = None
        self._over = False  # later events are ignored
        self._acted = False  # whether the last event's thread has run the actions that were due
        self._acted_at = 0.0  # when the due actions were last looked at, on the clock
        self._wakes_at: float | None = None  # when, on the clock, the caller's thread wakes up by itself

    def turn(self, executor: Executor) -> None:
        """Run the due actions and wait for the next event, after which `text` may have unread tokens. Raises the error
        of any thread; no further tokens are committed then."""
        try:
            wake = self.run_due(executor, acted=self._acted)
            happened = executor.wait(None if wake is None else max(0.0, wake - self._clock()))
            self._acted = happened and executor.at_once
        except BaseException as error:
            with self._lock:
                self._failure = self._failure or error
            raise

    def run_due(self, executor: Executor, *, acted: bool) -> float | None:
        """Take in the outcomes, and run the due actions. Returns when to call again if no event comes before,
        on the clock; None: only after an event. Raises the error of any thread.

        `acted`: whether the actions that were due after the last event were run.
        """
        if self._failure is not None:
            raise self._failure
        with self._lock:
            try:
                if self._controller.reflect() or not acted:
                    self._act(executor)
            finally:
                self._tell_all()
            wake = self._wakes_at = self._due
        return wake

    def end(self) -> None:
        """Ignore later events: the text has ended. Raises an earlier error of one of the executor's threads."""
        with self._lock:
            self._over = True
        if self._failure is not None:
            raise self._failure

    def react(self, event: events.Completion, executor: Executor) -> bool:
        """Handle an event and run the actions that are due after it. Returns whether to wake the caller's thread.

        Most draft steps bring nothing for the caller's thread, and a wake-up takes time from the thread that drafts.
        """
        with self._lock:
            if self._failure is None and not self._over:
                try:
                    return self._react(event, self._clock(), executor)
                except BaseException as error:  # `turn` raises it in the caller's thread
                    self._failure = error
        return True

    def _react(self, event: events.Completion, now: float, executor: Executor) -> bool:
        try:
            if self._text.finish_reason is not None:
                if isinstance(event, events.Answered):  # a late one, which counts for the times
                    self._count(event, now)
                return True
            self._handle(event, now)
            if self._text.finish_reason is not None or not executor.at_once:
                return True
            self._act(executor)
            if not isinstance(event, events.Drafted):
                return True
            due = self._due  # the caller's thread may wake up too late for it
            return due is not None and (self._wakes_at is None or due < self._wakes_at)
        finally:
            self._tell_all()

    def _tell_all(self) -> None:
        """Pass events to the listener after the due actions have begun, so that no action waits for it."""
        told, self._untold = self._untold, []
        for event, now in told:
            self._tell(event, now)

    @property
    def _due(self) -> float | None:
        """When the next action is due; None: only after an event. A moment that has come since the last look counts:
        a thread may wait for a core in between."""
        return self._controller.wake_at(self._acted_at)

    def _act(self, executor: Executor) -> None:
        """Send the verify requests that are due, and begin the draft step that is due."""
        now = self._acted_at = self._clock()
        while (in_flight_draft := self._controller.next_draft(now)) is not None:
            self._untold.append((events.Sent(in_flight_draft, self._controller.schedule), now))
            if self._explained:
                positions = enumerate(in_flight_draft.draft, in_flight_draft.draft.position)
                self._confidence |= {(position, each.token): each.confidence for position, each in positions}
            executor.send(in_flight_draft)
        step = self._controller.next_step(now)
        if step is not None:
            executor.draft(step, self._text.known)

    def _handle(self, event: events.Completion, now: float) -> None:
        match event:
            case events.Drafted(expansion, onward):
                took = self._controller.drafted(expansion.proposals, expansion.read, now, onward)
                self._untold.append((events.Drafted(expansion, onward, took), now))
            case events.Answered(in_flight_draft, response):
                self._count(event, now)
                self._commit(in_flight_draft.draft.position, response, now, in_flight_draft)
            case events.Streamed():
                self._untold.append((event, now))
                if event.forward is not None:
                    marks = event.details.sources
                    last = [*passes(marks)][-1] if marks else []
                    forced = self._forced_before(event.position, marks, len(marks) - len(last))
                    self._controller.self_continued(event.forward, forced, last_step(last))
                self._commit(event.position, event, now)
            case events.Failed(error):
                raise error

    def _count(self, event: events.Answered, now: float) -> None:
        """Take in a response, except its tokens."""
        response, marks = event.response, event.response.details.sources
        ran = last_round(marks)
        self._controller.answered(
            event.in_flight_draft,
            response.judged,
            queue=response.queue,
            forward=response.forward,
            now=now,
            shared=(response.sessions, response.pass_tokens),
            forced=0 if ran is None else self._forced_before(event.in_flight_draft.draft.position, marks, ran.start),
        )
        self._untold.append((event, now))

    def _forced_before(self, position: int, marks: Sequence[TokenMark], at: int) -> int:
        """The number of forced tokens right before the token of mark `at`. `position`: that of the first mark."""
        found = forced_before(marks, at)
        return found + (self._forced.get(position, 0) if found == at else 0)

    def _with_confidence(self, start: int, decisions: list[Decision | None]) -> list[Decision | None]:
        """The decisions on the tokens from position `start` on. Where the drafter's probability `q` is missing, it is
        filled in from `_confidence`."""
        known = self._confidence
        return [
            each if each is None or each.q is not None else replace(each, q=known.get((position, each.draft)))
            for position, each in enumerate(decisions, start)
        ]

    def _commit(
        self, position: int, brought: Verified | events.Streamed, now: float, answered: InFlightDraft | None = None
    ) -> None:
        """Append the new ones of the committed tokens, which begin at `position`.

        `answered`: the draft whose answer brought them; None: the event stream did.
        """
        start, learnt = len(self._text.known), self._controller.text
        mispredicted, ready = learnt.mispredicted, learnt.next_draft_ready
        ended = brought.finish_reason is not None
        marks = brought.details.sources
        forced = forced_before(marks, len(marks))
        new = self._controller.committed(position, brought.tokens, ended, now, forced)
        if new:
            if forced:
                self._forced[len(self._text.known)] = forced
            details = brought.details.last(len(new))
            if details.decisions is not None:
                details = details._replace(decisions=self._with_confidence(start, details.decisions))
            in_flight = self._controller.drafts_in_flight
            may_be_judged = in_flight if answered is None else [answered, *in_flight]
            committed = events.Committed(
                start,
                details.sourced(new),
                details,
                self._controller.schedule,
                mispredicted=learnt.mispredicted > mispredicted,
                next_draft_ready=learnt.next_draft_ready > ready,
                rounds=[*self._rounds.of(details.sources, start, self._text.known, may_be_judged)],
            )
            self._text.unread.append(committed)
            self._untold.append((committed, now))
        self._text.finish_reason = self._text.finish_reason or brought.finish_reason
