"""The engine thread: takes requests, runs one forward pass after another, and sleeps while none is due."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from typing import Any

from specpair.engines.backend import Backend
from specpair.engines.errors import BackendError, EngineLost, first_line
from specpair.protocol.errors import EngineError, ShuttingDown, SpecPairError
from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.terminal_text import one_line
from specpair.speculation.drafting.tree import Proposal
from verifier_server.engine.arrived_drafts import Request
from verifier_server.engine.head_drafts import HeadQuestion, step_time
from verifier_server.engine.interface import EngineInfo, EngineState, LoadedEngine, Serving
from verifier_server.engine.pass_time import pass_cost, shared_pass_cost
from verifier_server.engine.scheduler import Inconsistent, Scheduler
from verifier_server.sessions import Session

_log = logging.getLogger("specpair.engine")
_MOST_WHY = 200  # characters of the error that an engine dies of, which texts are told
SHUTTING_DOWN = "the verifier is shutting down: ask again when it is back"


def died_of(error: Exception) -> str:
    """The failure of an engine that the unexpected `error` has ended."""
    why = one_line(f"{type(error).__name__}: {first_line(error)}"[:_MOST_WHY])
    return f"the engine died: {why}: see the verifier's log, and restart it"


class Engine:
    """A `TokenEngine` that has logits. It owns the backend. Only its thread runs passes and commits tokens.

    A request is queued before the next pass; those that come together can share it.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        clock: Callable[[], float] = time.perf_counter,
        deliver: Callable[[], None] = lambda: None,
        on_failure: Callable[[], object] = lambda: None,
    ) -> None:
        """`clock`: in seconds. `deliver` is called from the engine's thread after answers were given, once per pass;
        `on_failure` at its end, if that is none that it was told of."""
        self.backend = scheduler.backend
        self.info = EngineInfo.of(scheduler.backend, scheduler.max_drafts, scheduler.head_time)
        self.failure: str | None = None  # why no more passes will run; None while they do
        self.away: str | None = None  # the model is in this process
        self.busy_since: float | None = None
        self._scheduler, self._clock, self._deliver, self._on_failure = scheduler, clock, deliver, on_failure
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()  # calls to make between passes, in order
        self._stopping = False  # whether no pass will run after the present one
        self._adding = threading.Lock()  # held to add a call, and to change `_stopping`
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def ended(self) -> SpecPairError | None:
        return self._end() if self._stopping or self.failure is not None else None

    def _end(self) -> SpecPairError:
        return ShuttingDown(SHUTTING_DOWN) if self.failure is None else EngineError(self.failure)

    def shut_down(self) -> None:
        with self._adding:
            self._stopping = True
            self._inbox.put(lambda: None)  # wakes the thread

    def stop(self) -> None:
        self.shut_down()
        self._thread.join()
        self.backend.close()

    def submit(self, *requests: Request) -> None:
        now = self._clock()
        if not self._between_passes(lambda: self._take_in(requests, now)):
            for request in requests:
                request.done(self._end())
            self._deliver()

    def ask_head(self, asked: Sequence[HeadQuestion]) -> list[Proposal | None]:
        answered: Future[list[Proposal | None]] = Future()

        def ask() -> None:
            try:
                answered.set_result([None] * len(asked) if self._stopping else self._scheduler.head.answer(asked))
            except BackendError as error:
                _log.warning("%s: no drafts by it in this round", error)
                answered.set_result([None] * len(asked))
            except Exception as error:
                answered.set_exception(error)

        if not self._between_passes(ask):
            raise self._end()
        return answered.result()

    def forget(self, session: Session) -> None:
        self._between_passes(lambda: self._scheduler.forget(session))

    def replace(self, old: Session, new: Session) -> None:
        self._between_passes(lambda: self._scheduler.replace(old, new))

    def is_resident(self, session: Session) -> bool:
        return session in self._scheduler.slots

    def prompt_progress(self, session: Session) -> PromptProgress | None:
        if session.finish_reason is not None:
            return None
        progress = PromptProgress(min(self._scheduler.slots.held(session), session.prompt_len), session.prompt_len)
        return progress if progress.read < progress.of else None

    @property
    def state(self) -> EngineState:
        return self._scheduler.state

    def check_integrity(self) -> None:
        checked: Future[None] = Future()

        def check() -> None:
            try:
                self._scheduler.check_integrity()
                checked.set_result(None)
            except Inconsistent as error:
                checked.set_exception(error)

        runs = self._thread.is_alive()
        if not (runs and self._between_passes(check)):
            if runs:
                self._thread.join()
            check()
        checked.result()

    def step(self) -> bool:
        """Make the calls of the inbox, then run one forward pass. Returns False if there was no pass to run."""
        self._make_calls()
        began = self._clock()
        plan = self._scheduler.plan(began)
        self._deliver()
        if plan is None:
            return False
        if self.backend.head_depth:
            self._scheduler.predict(plan, self._clock)
            began = self._clock()
        try:
            rows = self.backend.extend_top_logits(plan.batch, plan.top_logits_specs(self.backend.vocabulary.size))
        except BackendError as error:
            self._scheduler.failed(plan, error)
            if isinstance(error, EngineLost):
                self.failure = f"the engine died: {error}"
        else:
            self._scheduler.conclude(plan, rows, began, self._clock())
        self._deliver()
        return True

    def _between_passes(self, call: Callable[[], None]) -> bool:
        """Have the engine's thread make `call` before its next pass. Returns False if the thread is stopping."""
        with self._adding:
            if not self._stopping:
                self._inbox.put(call)
            return not self._stopping

    def _make_calls(self) -> None:
        while not self._inbox.empty():
            self._inbox.get_nowait()()

    def _take_in(self, requests: Sequence[Request], now: float) -> None:
        for at, request in enumerate(requests):
            try:
                self._scheduler.submit(request, now)
            except SpecPairError as error:
                request.done(error)
            except Exception as error:
                for unanswered in requests[at:]:
                    unanswered.done(EngineError(died_of(error)))
                raise

    def _run(self) -> None:
        try:
            while not self._stopping and self.failure is None:
                self.busy_since = time.monotonic()
                if not self.step():
                    self.busy_since = None
                    self._sleep()
        except Exception as error:
            _log.exception("the engine died")
            self.failure = died_of(error)
        self.busy_since = None
        with self._adding:
            self._stopping = True
        try:
            self._make_calls()
            self._scheduler.abandon(self._end())
            self._deliver()
        finally:  # what has ended the thread may also have left requests that cannot be answered
            if self.failure is not None:
                self._on_failure()

    def _sleep(self) -> None:
        """Wait for a call in the inbox and make it, but no longer than until the scheduler wants to plan again."""
        wake_at = self._scheduler.wake_at
        left = None if wake_at is None else wake_at - self._clock()
        if self._stopping or (left is not None and left <= 0):  # the call that `shut_down` adds may have been made
            return
        with suppress(Empty):
            call = self._inbox.get(timeout=left)
            call()


def with_logits(backend: Backend, settings: Any) -> LoadedEngine:
    """The engine over a backend, with its passes timed. A failure closes it. `settings`: of the verifier."""
    with ExitStack() as on_failure:
        on_failure.callback(backend.close)
        pass_times = shared_pass_cost(backend, time.perf_counter, pass_cost(backend, time.perf_counter))
        info = EngineInfo.of(backend, settings.max_drafts, step_time(backend, time.perf_counter))
        on_failure.pop_all()

    def serve(serving: Serving) -> Engine:
        backend.model_name, backend.chat_template = serving.info.model_name, serving.info.chat_template
        scheduler = Scheduler(
            backend,
            max_drafts=settings.max_drafts,
            prefill_chunk=settings.prefill_chunk,
            max_queue=settings.max_queue,
            pass_times=pass_times,
            head_time=info.head_time,
            most_kept=settings.most_kept(backend),
            one_scope=settings.share_prefixes,
            observer=serving.observer,
        )
        engine = Engine(scheduler, serving.clock, serving.deliver, serving.on_failure)
        engine.start()
        return engine

    return LoadedEngine(info, backend.chat_templates, backend.chat_template, pass_times, serve, backend.close)
