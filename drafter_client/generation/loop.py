"""The pilot and its crew at work on one text: what happens is told to the one, what is due is had done by the other."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from drafter_client.generation.executors import Answered, Drafted, Event, Executor, Failed, Streamed
from drafter_client.generation.observer import Committed, Observer
from drafter_client.http.responses import STREAM, ResponseBounds
from drafter_client.metrics.statistics import Stats
from drafter_client.metrics.token_source import SourceChange, TokenSources
from speculation.acceptance.decisions import Decision
from speculation.acceptance.strategies import Strategy
from speculation.policy.controller import SpeculationController

_LAST_ANSWERS = 2.0  # seconds; they come with the end of the text, but from a link that fails


class GenerationLoop:
    """The pilot and its crew at work on one text. `react` may be called from any thread."""

    def __init__(
        self,
        controller: SpeculationController,
        executor: Executor,
        bounds: ResponseBounds,
        stats: Stats,
        clock: Callable[[], float],
        finish_reason: str | None,
        strategy: Strategy,
        explained: bool,
        observer: Observer | None,
    ) -> None:
        self.finish_reason = finish_reason
        self._explained = explained
        self._controller, self._executor, self._bounds, self._stats, self._clock = (
            controller,
            executor,
            bounds,
            stats,
            clock,
        )
        self._observer = observer
        self._sources = TokenSources(controller.known, accepts=strategy is not Strategy.GREEDY)
        self._odds: dict[tuple[int, int | None], float] = {}  # of drafts at their places, if tokens are explained
        self._lock = threading.Lock()  # over all of this
        self._news: deque[Committed] = deque()
        self._failure: BaseException | None = None
        self._over = False  # whether what comes now is of no use any more
        self._in_time = False  # whether all was ordered that is due by now
        self._wakes_at: float | None = None  # when the caller's thread will look by itself, as far as the others know

    def turn(self) -> None:
        """Wait for something to happen, by which something may have become known. Raises what failed; nothing more
        becomes known then."""
        try:
            self._turn()
        except BaseException as error:
            with self._lock:
                self._failure = self._failure or error
            raise

    def _turn(self) -> None:
        if self._failure is not None:
            raise self._failure
        with self._lock:
            if not self._in_time:
                self._order()
            if self._controller.reflect():
                self._order()
            now = 1e3 * self._clock()
            wake = self._wakes_at = self._controller.wake_at(now)
        self._in_time = self._executor.wait(None if wake is None else max(0.0, wake - now) / 1e3)

    def news(self) -> Iterator[Committed]:
        """What became known since the last time, one by one: what is not taken stays."""
        while self._news:
            yield self._news.popleft()

    @property
    def known(self) -> int:
        """Tokens of the text that are known, prompt included."""
        return len(self._controller.known)

    def settle(self) -> None:
        """The text has ended: wait for the answers that left together with its end, which say what came of what.

        Answers that can say nothing new are not waited for, nor any for long: the text is here.
        """
        while self._failure is None and self._awaits_answers() and self._executor.wait(_LAST_ANSWERS):
            pass
        with self._lock:
            self._over = True
            if self._failure is None:
                self._amend(self._sources.close())
        if self._failure is not None:
            raise self._failure

    def _awaits_answers(self) -> bool:
        with self._lock:
            return not self._over and self._sources.waits

    def react(self, event: Event) -> bool:
        """Take in what happened, and do what is due then; whether the caller's thread has something to do, too.

        Most draft steps change nothing for it, and to wake it takes time from the thread that drafts.
        """
        with self._lock:
            if self._failure is None and not self._over:
                try:
                    now = 1e3 * self._clock()
                    if self.finish_reason is not None:
                        self._take_in_late(event, now)
                        return True
                    self._take_in(event, now)
                    if self.finish_reason is None:
                        self._order()
                        return not isinstance(event, Drafted) or self._wakes_too_late(now)
                except BaseException as error:  # whatever it is, it belongs to the caller's thread
                    self._failure = error
        return True

    def _wakes_too_late(self, now: float) -> bool:
        """Whether the caller's thread would look later than something is due."""
        due = self._controller.wake_at(now)
        return due is not None and (self._wakes_at is None or due < self._wakes_at)

    def _order(self) -> None:
        now = 1e3 * self._clock()
        while (in_flight_draft := self._controller.next_guess(now)) is not None:
            self._sources.sent(in_flight_draft)
            if self._observer is not None:
                self._observer.sent(in_flight_draft, self._controller.schedule)
            if self._explained:
                self._odds |= dict(
                    zip(
                        enumerate(in_flight_draft.drafts, in_flight_draft.position),
                        in_flight_draft.confidence,
                        strict=True,
                    )
                )
            self._executor.send(in_flight_draft)
        step = self._controller.next_step(now)
        if step is not None:
            self._executor.draft(step, self._controller.known)

    def _take_in(self, event: Event, now: float) -> None:
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Drafted):
            expansion = event.expansion
            took = self._controller.drafted(expansion.predictions, expansion.read, now, event.onward)
            self._stats.drafted_for(took, now)
            if self._observer is not None:
                self._observer.drafted(expansion, took, now)
        elif isinstance(event, Answered):
            response, in_flight_draft = event.response, event.in_flight_draft
            self._bounds.check("/verify", in_flight_draft.position, response.tokens)
            self._controller.answered(
                in_flight_draft, response.judged, response.queue_ms, response.forward_ms, now, response.sessions
            )
            self._bounds.check_explained("/verify", self._explained, response.decisions)
            self._count(event, now)
            brought = self._commit(
                in_flight_draft.position, response.tokens, response.finish_reason, response.decisions, now
            )
            if self._observer is not None:
                self._observer.answered(in_flight_draft, response, brought, now)
        else:
            self._bounds.check(STREAM, event.position, event.tokens)
            if event.forward_ms is not None:
                self._controller.went_on(event.forward_ms)
                self._stats.target_decoded(event.forward_ms, now)
                if self._observer is not None:
                    self._observer.went_on(event.forward_ms, now)
            self._bounds.check_explained(STREAM, self._explained and bool(event.tokens), event.decisions)
            if event.own:
                self._amend(self._sources.went_on(event.position, len(event.tokens)))
            self._commit(event.position, event.tokens, event.finish_reason, event.decisions, now)

    def _take_in_late(self, event: Event, now: float) -> None:
        """The text has ended: nothing is news but what came of what, and nothing can fail that is of use."""
        if isinstance(event, Failed):
            self._over = True
        elif isinstance(event, Answered):
            self._count(event, now)
            if self._observer is not None:
                self._observer.answered(event.in_flight_draft, event.response, 0, now)
        elif isinstance(event, Streamed) and event.own:
            self._amend(self._sources.went_on(event.position, len(event.tokens)))

    def _count(self, answer: Answered, now: float) -> None:
        """What a guess came to."""
        response, in_flight_draft = answer.response, answer.in_flight_draft
        self._stats.round(response, in_flight_draft, now)
        drafts, end = len(in_flight_draft.drafts), in_flight_draft.position + len(response.tokens)
        recorded = in_flight_draft.position + response.recorded(drafts)
        self._amend(self._sources.answered(in_flight_draft, recorded, response.stood(drafts), end, response.unjudged))

    def _amend(self, changes: list[SourceChange]) -> None:
        self._stats.amend(changes)
        if self._observer is not None and changes:
            self._observer.settled(changes)

    def _with_odds(self, start: int, decisions: list[Decision]) -> list[Decision]:
        """The decisions on tokens from `start` on, with the drafter's own odds of drafts that went without."""
        known = self._odds
        return [
            each if each.q is not None else replace(each, q=known.get((place, each.draft)))
            for place, each in enumerate(decisions, start)
        ]

    def _commit(
        self,
        position: int,
        tokens: list[int],
        finish_reason: str | None,
        decisions: list[Decision] | None,
        now: float,
    ) -> int:
        """Take in committed tokens from `position` on; returns how many of them are news."""
        start, text = len(self._controller.known), self._controller.text
        mispredicted, next_draft_ready = text.mispredicted, text.next_draft_ready
        new = self._controller.committed(position, tokens, finish_reason is not None, now)
        if new:
            why = self._with_odds(start, decisions[-len(new) :]) if decisions is not None else None
            told = list(zip(new, self._sources.tell(start, len(new)), strict=True))
            self._stats.committed(told, self._controller.schedule, why or ())
            self._stats.mispredicted += text.mispredicted - mispredicted
            self._stats.next_draft_ready += text.next_draft_ready - next_draft_ready
            committed = Committed(told, why)
            self._news.append(committed)
            if self._observer is not None:
                self._observer.committed(start, committed, now)
        self.finish_reason = self.finish_reason or finish_reason
        return len(new)
