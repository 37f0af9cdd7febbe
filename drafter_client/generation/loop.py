"""The loop of one text: feeds events to the controller and runs the actions it returns."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from drafter_client.generation.executors import Answered, Completion, Drafted, Executor, Failed, Streamed
from drafter_client.generation.observer import Committed, Observer
from drafter_client.http.responses import STREAM, ResponseBounds
from drafter_client.metrics.statistics import Stats
from drafter_client.metrics.token_source import SourceChange, TokenSources
from speculation.acceptance.explain import Decision
from speculation.acceptance.strategies import Strategy
from speculation.policy.controller import SpeculationController

_LAST_RESPONSES = 2.0  # seconds to wait for each response; they arrive with the end of the text unless the link fails


class GenerationLoop:
    """Feeds the events of one text to the controller, and has the executor run what the controller decides.

    `turn`, `news` and `settle` are for the thread that reads the text, the caller's; `react` is for any thread.
    """

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
        """`clock`: returns seconds. `finish_reason`: not None if the prefill ended the text. `explained`: whether the
        session was opened with `explain`, so that each token comes with its decision."""
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
        # The drafter's probability of each draft token that was sent, by position and token; empty unless explained.
        self._confidence: dict[tuple[int, int | None], float] = {}
        self._lock = threading.Lock()  # guards all of this object
        self._news: deque[Committed] = deque()
        self._failure: BaseException | None = None
        self._over = False  # later events are ignored
        self._acted = False  # whether the last event's thread has run the actions that were due
        self._wakes_at: float | None = None  # milliseconds on the clock: when the caller's thread wakes up by itself

    def turn(self) -> None:
        """Run the due actions and wait for the next event, after which `news` may yield tokens. Raises the error of any
        thread; no further tokens are committed then."""
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
            if not self._acted:
                self._act()
            if self._controller.reflect():
                self._act()
            now = 1e3 * self._clock()
            wake = self._wakes_at = self._controller.wake_at(now)
        self._acted = self._executor.wait(None if wake is None else max(0.0, wake - now) / 1e3)

    def news(self) -> Iterator[Committed]:
        """Yield the newly committed tokens. Those that the caller does not take are yielded by the next call."""
        while self._news:
            yield self._news.popleft()

    @property
    def known(self) -> int:
        """Length of the committed text in tokens, prompt included."""
        return len(self._controller.known)

    def settle(self) -> None:
        """After the end of the text, wait for the responses to drafts that show the source of its last tokens.

        Other responses are not waited for. The wait is about a round trip, and bounded: the verifier runs no more
        passes for this text. Raises an earlier error of one of the executor's threads.
        """
        while self._failure is None and self._awaits_responses() and self._executor.wait(_LAST_RESPONSES):
            pass
        with self._lock:
            self._over = True
            if self._failure is None:
                self._amend(self._sources.close())
        if self._failure is not None:
            raise self._failure

    def _awaits_responses(self) -> bool:
        with self._lock:
            return not self._over and self._sources.awaits_responses

    def react(self, event: Completion) -> bool:
        """Handle an event and run the actions that are due after it. Returns whether to wake the caller's thread.

        Most draft steps bring nothing for the caller's thread, and a wake-up takes time from the thread that drafts.
        """
        with self._lock:
            if self._failure is None and not self._over:
                try:
                    now = 1e3 * self._clock()
                    if self.finish_reason is not None:
                        self._handle_late(event, now)
                        return True
                    self._handle(event, now)
                    if self.finish_reason is None:
                        self._act()
                        return not isinstance(event, Drafted) or self._wakes_too_late(now)
                except BaseException as error:  # `turn` raises it in the caller's thread
                    self._failure = error
        return True

    def _wakes_too_late(self, now: float) -> bool:
        """Whether the next action is due before the caller's thread wakes up by itself."""
        due = self._controller.wake_at(now)
        return due is not None and (self._wakes_at is None or due < self._wakes_at)

    def _act(self) -> None:
        """Send the verify requests that are due, and begin the draft step that is due."""
        now = 1e3 * self._clock()
        while (in_flight_draft := self._controller.next_draft(now)) is not None:
            self._sources.sent(in_flight_draft)
            if self._observer is not None:
                self._observer.sent(in_flight_draft, self._controller.schedule)
            if self._explained:
                self._confidence |= dict(
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

    def _handle(self, event: Completion, now: float) -> None:
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
            decisions = self._bounds.explained("/verify", self._explained, response.tokens, response.decisions)
            self._count(event, now)
            new = self._commit(in_flight_draft.position, response.tokens, response.finish_reason, decisions, now)
            if self._observer is not None:
                self._observer.answered(in_flight_draft, response, new, now)
        else:
            self._bounds.check(STREAM, event.position, event.tokens)
            if event.forward_ms is not None:
                self._controller.self_continued(event.forward_ms)
                self._stats.target_decoded(event.forward_ms, now)
                if self._observer is not None:
                    self._observer.target_decoded(event.forward_ms, now)
            asked = self._explained and bool(event.tokens)
            decisions = self._bounds.explained(STREAM, asked, event.tokens, event.decisions)
            if event.target_decoded:
                self._amend(self._sources.target_decoded(event.position, len(event.tokens)))
            self._commit(event.position, event.tokens, event.finish_reason, decisions, now)

    def _handle_late(self, event: Completion, now: float) -> None:
        """Handle an event after the end of the text, which can only decide token sources; errors no longer matter."""
        if isinstance(event, Failed):
            self._over = True
        elif isinstance(event, Answered):
            self._count(event, now)
            if self._observer is not None:
                self._observer.answered(event.in_flight_draft, event.response, 0, now)
        elif isinstance(event, Streamed) and event.target_decoded:
            self._amend(self._sources.target_decoded(event.position, len(event.tokens)))

    def _count(self, event: Answered, now: float) -> None:
        """Count a response, and decide the sources of the tokens that its verifier pass committed."""
        response, in_flight_draft = event.response, event.in_flight_draft
        self._stats.round(response, in_flight_draft, now)
        drafts, end = len(in_flight_draft.drafts), in_flight_draft.position + len(response.tokens)
        recorded = in_flight_draft.position + response.recorded(drafts)
        self._amend(
            self._sources.answered(in_flight_draft, recorded, response.judged_accepted(drafts), end, response.unjudged)
        )

    def _amend(self, changes: list[SourceChange]) -> None:
        self._stats.amend(changes)
        if self._observer is not None and changes:
            self._observer.settled(changes)

    def _with_confidence(self, start: int, decisions: list[Decision]) -> list[Decision]:
        """The decisions on the tokens from position `start` on. Where the drafter's probability `q` is missing, it is
        filled in from `_confidence`."""
        known = self._confidence
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
        """Add committed tokens from `position` on to the text; return how many of them are new."""
        start, text = len(self._controller.known), self._controller.text
        mispredicted, next_draft_ready = text.mispredicted, text.next_draft_ready
        new = self._controller.committed(position, tokens, finish_reason is not None, now)
        if new:
            explained = self._with_confidence(start, decisions[-len(new) :]) if decisions is not None else None
            tokens_with_sources = list(zip(new, self._sources.provisional(start, len(new)), strict=True))
            self._stats.committed(tokens_with_sources, self._controller.schedule, explained or ())
            self._stats.mispredicted += text.mispredicted - mispredicted
            self._stats.next_draft_ready += text.next_draft_ready - next_draft_ready
            committed = Committed(tokens_with_sources, explained)
            self._news.append(committed)
            if self._observer is not None:
                self._observer.committed(start, committed, now)
        self.finish_reason = self.finish_reason or finish_reason
        return len(new)
