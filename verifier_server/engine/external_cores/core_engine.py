"""The engine over a core: commits the core's tokens, and sends the core a request for each text.

The core decodes by itself as far as it is allowed to. So self-continuation and whole texts are the core's own decoding,
and drafts are judged in its steps. All work is in one event loop, in a thread of its own.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from specpair.protocol.errors import EngineError, ModelLoading, ShuttingDown, SpecPairError
from specpair.protocol.prompt_progress import PromptProgress
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.acceptance.token_sources import SELF_CONTINUED, TokenDetails, marks_of
from specpair.speculation.drafting.tree import Proposal
from verifier_server.engine.arrived_drafts import Request
from verifier_server.engine.engine import SHUTTING_DOWN, died_of
from verifier_server.engine.external_cores.core import (
    Core,
    CoreLost,
    CoreOutput,
    CoreRequest,
    CoreUnreachable,
    LoopThread,
    core_request,
    step_request,
)
from verifier_server.engine.head_drafts import HeadQuestion
from verifier_server.engine.interface import AWAY_WAIT, EngineState, Serving
from verifier_server.engine.pass_time import PassTime
from verifier_server.engine.queue import Queue
from verifier_server.engine.sequence_state import SequenceState
from verifier_server.sessions import Session

_log = logging.getLogger("specpair.engine")


@dataclass(eq=False, slots=True)
class _Text:
    """A text in the core."""

    name: str
    wanted: CoreRequest
    timer: asyncio.TimerHandle | None = None  # when what is wanted has to be thought over


class CoreEngine:
    """A `TokenEngine`. All but its public methods runs in the loop's thread."""

    def __init__(
        self,
        core: Core,
        loop: LoopThread,
        serving: Serving,
        pass_times: Sequence[float] = (),
        *,
        max_queue: int = 256,
        one_scope: bool = False,
    ) -> None:
        """`pass_times`: seconds of steps over 1, 2, … tokens of a text.
        `max_queue`: requests that may wait.
        `one_scope`: whether texts of all scopes share what they begin with.
        """
        self.info = info = serving.info
        self.failure: str | None = None
        self.away: str | None = None
        self.busy_since: float | None = None
        self.core, self._loop, self._one_scope = core, loop, one_scope
        self._clock, self._deliver, self._observer = serving.clock, serving.deliver, serving.observer
        self._on_failure = serving.on_failure
        self._pass_time = PassTime(pass_times)
        self._queue = Queue(info.max_drafts, max_queue)
        self._texts: dict[Session, _Text] = {}
        self._sessions: dict[str, Session] = {}  # by name
        self._numbers = count(1)
        self._outgoing: asyncio.Queue[Callable[[], Coroutine[Any, Any, None]]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._evictions = 0
        self._stopping = False

    def start(self) -> None:
        """Begin to serve."""

        async def begin() -> None:
            self._tasks = [asyncio.create_task(work) for work in (self._read(), self._send())]

        self._loop.result(begin())

    @property
    def ended(self) -> SpecPairError | None:
        if self.failure is not None:
            return EngineError(self.failure)
        if self.away is not None and not self._stopping:
            return ModelLoading(f"{self.away}: ask again when it is back", retry_after=AWAY_WAIT)
        return ShuttingDown(SHUTTING_DOWN) if self._stopping else None

    @property
    def state(self) -> EngineState:
        running = min(waiting := self._queue.size, len(self._texts))
        return EngineState(
            waiting=waiting - running,
            running=running,
            full=self._queue.is_full,
            slots=self.info.slots,
            slots_in_use=min(len(self._texts), self.info.slots),
            cached_tokens=sum(len(session.tokens) for session in list(self._texts)),
            kept_tokens=0,
            context_length=self.info.context_length,
            evictions=self._evictions,
        )

    def submit(self, *requests: Request) -> None:
        now = self._clock()
        self.busy_since = self.busy_since or time.monotonic()
        self._call(partial(self._take_in, requests, now))

    def forget(self, session: Session) -> None:
        self._call(partial(self._forget, session))

    def replace(self, old: Session, new: Session) -> None:
        """Remove `old`. The core's cache holds the prefix of `new`."""

        def take_over() -> None:
            self._queue.inherit(old, new)
            self._forget(old)

        self._call(take_over)

    def ask_head(self, asked: Sequence[HeadQuestion]) -> list[Proposal | None]:
        return [None] * len(asked)

    def is_resident(self, session: Session) -> bool:
        return session in self._texts

    def prompt_progress(self, session: Session) -> PromptProgress | None:
        """0 or the whole prompt: the core reports no progress."""
        read = session.finish_reason is not None or len(session.tokens) > session.decided_from
        return None if read else PromptProgress(0, session.prompt_len)

    def shut_down(self) -> None:
        self._stopping = True
        self._call(self._abandon)

    def stop(self) -> None:
        async def end() -> None:
            self._stopping = True
            self._abandon()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.core.close()

        self._loop.result(end())
        self._loop.stop()

    def check_integrity(self) -> None:
        """Raises RuntimeError."""

        async def faults() -> list[str]:
            unknown = [name for name, session in self._sessions.items() if self._texts.get(session) is None]
            return [*self._queue.check(), *(f"text {name} belongs to no session" for name in unknown)]

        if found := self._loop.result(faults()):
            raise RuntimeError("; ".join(found))

    def _call(self, call: Callable[[], object]) -> None:
        """Have the loop's thread make `call`. Calls keep their order."""
        self._loop.loop.call_soon_threadsafe(self._make, call)

    def _make(self, call: Callable[[], object]) -> None:
        with self._fatal():
            call()

    @contextmanager
    def _fatal(self) -> Iterator[None]:
        """An error in the block ends the engine."""
        try:
            yield
        except CoreLost as error:
            self._fail(str(error))
        except Exception as error:
            self._die(error)

    def _die(self, error: Exception) -> None:
        _log.exception("the engine died")
        self._fail(died_of(error))

    def _take_in(self, requests: Sequence[Request], now: float) -> None:
        for request in requests:
            try:
                if (error := self.ended) is not None:
                    raise error
                self._queue.check_room(request, lambda blocking: len(blocking) * self._pass_time.at(1))
                sequence = self._queue.add(request, now)
                self._queue.settle(sequence, now)
                self._tell(sequence, now)
            except SpecPairError as error:
                request.done(error)
            except Exception as error:
                request.done(EngineError(died_of(error)))
                self._die(error)
        if not self._queue.size:
            self.busy_since = None
        self._deliver()

    def _tell(self, sequence: SequenceState, now: float) -> None:
        """Send the core a new request for a text, if that changes what the core does."""
        session, text = sequence.session, self._texts.get(sequence.session)
        if session.finish_reason is not None or session.gone or (text is None and not sequence.requests):
            return
        wanted, again = core_request(sequence, now, self._pass_time.at(1) / 2, self.info.max_drafts)
        if text is None:
            text = self._texts[session] = _Text(f"{session.id}:{next(self._numbers)}", wanted)
            self._sessions[text.name] = session
            # Texts of the same salt share what they begin with.
            salt = repr((None if self._one_scope else session.scope, session.spec.cache_salt))
            self._outgoing.put_nowait(partial(self.core.begin, text.name, session, salt, wanted))
        elif text.wanted != wanted and any(
            each.wants_step(session.tokens, len(session.tokens)) for each in (text.wanted, wanted)
        ):
            text.wanted = wanted
            self._outgoing.put_nowait(partial(self.core.update, text.name, wanted))
        if text.timer is not None:
            text.timer.cancel()
        text.timer = None
        if again is not None:
            text.timer = self._loop.loop.call_later(again, self._make, lambda: self._tell(sequence, self._clock()))

    def _forget(self, session: Session) -> None:
        self._queue.forget(session)
        session.gone = True
        self._drop(session)
        session.notify()
        self._deliver()

    def _drop(self, session: Session, *, ended: bool = False) -> None:
        """Forget a text of the core. `ended`: whether the core has done so, too."""
        if (text := self._texts.pop(session, None)) is not None:
            del self._sessions[text.name]
            if text.timer is not None:
                text.timer.cancel()
            if not ended:
                self._outgoing.put_nowait(partial(self.core.forget, [text.name]))

    async def _read(self) -> None:
        with self._fatal():
            while True:
                try:
                    outputs = await self.core.outputs()
                except CoreUnreachable as error:  # it has forgotten the texts; their sessions stay
                    self.away = str(error)
                    _log.error("%s: waiting until it is back", error)
                    for session in list(self._texts):
                        self._drop(session)
                    self._abandon()
                    continue
                if self.away is not None:
                    _log.warning("%s is back: texts continue", self.info.name)
                    self.away = None
                now = self._clock()
                for output in outputs:
                    if (found := self._sessions.get(output.name)) is not None:
                        self._take(self._queue[found], output, now)
                self._count(outputs)
                self._deliver()
                self.busy_since = time.monotonic() if self._queue.size else None

    async def _send(self) -> None:
        with self._fatal():
            while True:
                await (await self._outgoing.get())()

    def _fail(self, reason: str) -> None:
        if self.failure is None and not self._stopping:
            self.failure = reason
            _log.error("%s", reason)
            try:
                self._abandon()
            finally:
                self._on_failure()

    def _abandon(self) -> None:
        """Fail all waiting requests, and notify the watchers: no more tokens are committed."""
        error = self.ended
        for sequence in self._queue.sequences:
            if error is not None:
                self._queue.fail(sequence, list(sequence.requests), error)
            sequence.session.notify()
        self.busy_since = None
        self._deliver()

    def _take(self, sequence: SequenceState, output: CoreOutput, now: float) -> None:
        """Commit a step's output for a text, and answer the requests that it completes."""
        session = sequence.session
        if output.cached is not None and session.cached is None:
            session.cached = output.cached
        if output.tokens:
            self._commit(sequence, output, now)
        if output.ended or session.finish_reason is not None:
            self._drop(session, ended=output.ended)
        if output.ended and session.finish_reason is None:
            named = f"{self.info.name} could not continue the text of session {session.id}: see its log"
            told = EngineError(named) if output.error is None else output.error
            self._queue.fail(sequence, list(sequence.requests), told)
        self._tell(sequence, now)
        session.notify()

    def _commit(self, sequence: SequenceState, output: CoreOutput, now: float) -> None:
        session, step, tokens = sequence.session, output.step, output.tokens
        accepts = session.strategy is not Strategy.GREEDY
        accepted = [accepts and at < len(step.draft) and token == step.draft[at] for at, token in enumerate(tokens)]
        run = step_request(sequence, step.draft)
        if run is not None:
            if run.started is None:
                run.started = max(run.submitted, now - step.seconds)  # it may have come while the step ran
                self._observer.waited(run.started - run.submitted)
            run.forward += step.seconds
            run.sessions = step.texts
            sequence.judged_at = now
        alone = run is None and not step.draft
        marks = [SELF_CONTINUED] * len(tokens) if alone else marks_of(accepted, len(step.draft))
        before = len(session.tokens)
        session.commit(list(tokens), TokenDetails(marks, None, output.logprobs), forward=step.seconds)
        sequence.tell(self._observer, len(session.tokens) - before, len(step.draft), sum(accepted), alone, now)
        self._queue.settle(sequence, now, run, len(step.draft))

    def _count(self, outputs: Sequence[CoreOutput]) -> None:
        """Tell the observer of the step that gave these outputs."""
        self._evictions += sum(output.step.preempted for output in outputs)
        steps = [output.step for output in outputs if output.step.fed]
        if steps:
            fed = sum(step.fed for step in steps)
            prefilled = sum(max(0, step.fed - 1 - len(step.draft) - step.own) for step in steps)
            self._observer.passed(len(steps), fed, prefilled, steps[0].seconds)
            self._pass_time.learn(fed, steps[0].seconds)
