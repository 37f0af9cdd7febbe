"""What the next forward pass holds: guesses first, then chunks of prompts, then steps that sessions take by themselves.

All sessions share each pass (continuous batching). Prefill, verify, plain decoding and recomputing an evicted row are
one thing here: feed what the row lacks of the session's tokens, then the fresh drafts; judge from the last committed
token on. Nothing here waits, reads a clock or runs the model, so that the same code runs in virtual time:

    plan = scheduler.plan(now)        None: ask again when something was submitted, or at `scheduler.wake_at`
    rows = backend.heads(plan.batch, plan.heads(backend.vocabulary.size))
    scheduler.conclude(plan, rows, began, ended)
"""

import logging
import math
from collections.abc import Sequence

from backends.base import Backend, BackendError, Rows
from speculation.acceptance.decisions import Decision, explain
from speculation.acceptance.strategies import judge
from speculation.errors import EngineError, Overloaded, SpecPairError
from verifier_server.engine.batch_plan import BatchItem, BatchPlan
from verifier_server.engine.batching_window import LONGEST, window_until
from verifier_server.engine.composer import Composer
from verifier_server.engine.draft_credit import price
from verifier_server.engine.queue import Queue
from verifier_server.engine.requests import Request
from verifier_server.engine.sequence_state import SequenceState
from verifier_server.engine.slots import SlotPool
from verifier_server.engine.step_time import StepTime
from verifier_server.sessions import Session

_log = logging.getLogger("specpair.engine")


class Inconsistent(Exception):
    """The scheduler's books do not add up; the message says where."""


class Scheduler:
    """Owns what waits and which session has which row. Used by one thread at a time; times in seconds, on any clock."""

    def __init__(
        self,
        backend: Backend,
        *,
        max_drafts: int = 64,
        prefill_chunk: int = 128,
        max_queue: int = 256,
        hold: float = LONGEST,
        pass_ms: Sequence[float] = (),
    ) -> None:
        """`prefill_chunk`: tokens of prompts in a pass that others share. `hold`: how long a pass may wait for guesses
        about to come, as a share of what it takes. `pass_ms[n]`: milliseconds of a pass over n + 1 tokens, if known."""
        self.max_drafts = min(max_drafts, backend.max_batch_tokens - 1)  # a guess is judged in one pass
        self.wake_at: float | None = None  # when to plan again at the latest, though nothing was submitted
        self._backend = backend
        self._hold = hold
        self._step_time = StepTime(pass_ms)
        self._queue = Queue(self.max_drafts, max_queue)
        self._rows = SlotPool(backend)
        self._composer = Composer(backend, self._rows, self._queue, prefill_chunk, self.max_drafts, price(pass_ms))
        self._running: BatchPlan | None = None
        self._passes = 0
        self._opened: float | None = None  # when the next pass could first have started

    def submit(self, request: Request, now: float) -> None:
        """Take in a guess. Raises Overloaded, with `retry_after` in seconds, and UnknownSession if it is forgotten."""
        if not (request.resumes or self._queue.has_room(request.session)):
            raise Overloaded(
                f"{self._queue.fullness(request.session)}: try again later",
                retry_after=max(1, math.ceil(self._room_in(request.session))),
            )
        sequence = self._queue.add(request, now)
        if len(sequence.requests) == 1:
            sequence.served = self._passes  # whoever comes queues behind those who are here

    def forget(self, session: Session, now: float) -> None:
        """Give up the row of a session that is gone; what waits of it fails with UnknownSession."""
        self._queue.forget(session)
        session.gone = True
        if self._running is None or all(part.sequence.session is not session for part in self._running.parts):
            self._rows.drop(session)  # else when the pass under way is over
        _tell(session)

    def replace(self, old: Session, new: Session, now: float) -> None:
        """Give up `old` as `forget` does, and let `new` have its row with what it holds of their common beginning."""
        self._queue.succeed(old, new)
        if self._running is None and old.row is not None:
            self._rows.take_over(old, new)
        self.forget(old, now)

    def plan(self, now: float) -> BatchPlan | None:
        """The next pass, or None when there is nothing to run now. What the record answers is answered."""
        if self._running is not None:
            raise RuntimeError("the pass under way has not been concluded")
        self.wake_at = None
        self._queue.drop_silent(now)
        for sequence in self._queue.waiting:
            self._queue.settle(sequence, now)
        waiting, quiet = self._queue.waiting, [sequence for sequence in self._queue.recent if not sequence.requests]
        going_on = [sequence for sequence in quiet if sequence.goes_on]
        ready = waiting or self._due(going_on, now)
        if not ready:
            self._opened = None
            return None
        others = quiet if waiting else [sequence for sequence in quiet if sequence not in going_on]
        if self._held_open(ready, others, now):
            return None
        self._opened = None
        self._running = plan = self._composer.compose(waiting, going_on)
        self._passes += 1
        for part in plan.parts:
            part.sequence.served = self._passes
            self._queue.served(part.sequence)
            self._rows.use(part.sequence.session)
        return plan

    def conclude(self, plan: BatchPlan, brought: Sequence[Rows], began: float, ended: float) -> None:
        """Judge and commit what a pass over `plan.batch` brought, answer the guesses, tell those who watch."""
        self._running = None
        for part, entry, rows in zip(plan.parts, plan.batch, brought, strict=True):
            session = part.sequence.session
            if session.gone:
                self._rows.drop(session)
                continue
            session.held = entry.start + len(entry.tokens)
            if (run := part.run) is not None:
                run.started = began if run.started is None else run.started
                run.forward += ended - began
                run.sessions = len(plan.parts)
            if not len(rows):
                continue
            try:
                self._commit(part, rows, began, ended)
            except (ValueError, BackendError) as error:  # a NaN, or a row not to be had; the other sessions are sound
                self._refill([part], error)
                continue
            self._queue.settle(part.sequence, ended, part.run, len(part.fresh))
        self._step_time.learn(plan.tokens, ended - began)
        if plan.holds_chunk:
            self._composer.chunk_over = ended

    def failed(self, plan: BatchPlan, error: Exception, now: float) -> None:
        """Fail the guesses of a pass that the engine could not run; what its rows hold will be computed anew."""
        self._running = None
        self._refill(plan.parts, error)

    def abandon(self, error: SpecPairError) -> None:
        """Fail everything that waits, and tell those who watch: there will be no more passes."""
        for sequence in self._queue.sequences:
            self._queue.fail(sequence, list(sequence.requests), error)
            _tell(sequence.session)

    def check_integrity(self) -> None:
        """Raises Inconsistent when sessions, rows and guesses do not add up."""
        faults = [*self._rows.check(), *self._queue.check()]
        owners = set(self._rows.owners())
        for sequence in self._queue.sequences:
            if (sequence.session.row is not None) != (sequence.session in owners):
                faults.append(
                    f"session {sequence.session.id} has row {sequence.session.row}, which the rows do not know"
                )
        if self._running is None and not owners <= {sequence.session for sequence in self._queue.sequences}:
            faults.append("a row belongs to a session that nobody knows")
        if faults:
            raise Inconsistent("; ".join(faults))

    def _due(self, going_on: list[SequenceState], now: float) -> list[SequenceState]:
        """Sessions that a pass of their own steps alone may start for: all, once one of them expects no guess soon."""
        half_step = self._step_time.at(1) / 2
        blocked = [sequence.blocked_until(now, half_step) for sequence in going_on]
        if None in blocked:
            return going_on
        self.wake_at = min((until for until in blocked if until is not None), default=None)
        return []

    def _held_open(self, ready: list[SequenceState], others: list[SequenceState], now: float) -> bool:
        """Whether the pass that `ready` could have now waits for `others` a little longer, until `wake_at`."""
        expected = [
            sequence.arrivals.latest
            for sequence in others
            if sequence.arrivals.latest is not None and sequence.session.row is not None
        ]
        if expected:
            self._opened = now if self._opened is None else self._opened
            step = self._step_time.at(self._composer.width(ready))
            self.wake_at = window_until(now, self._opened + self._hold * step, step, len(ready), expected)
        return self.wake_at is not None

    def _commit(self, part: BatchItem, rows: Rows, began: float, ended: float) -> None:
        session, ends = part.sequence.session, self._backend.vocabulary.ends
        rule, position = session.rule, len(session.tokens)
        rulings = judge(part.fresh, rows, rule, position, ends, part.proposals)
        decisions: list[Decision] = []
        if session.decisions is not None:
            decisions = explain(rule, rulings, part.fresh, rows, position, part.proposals)
        tokens = [ruling.token for ruling in rulings]
        session.commit(tokens, ends, own=part.run is None, forward_ms=1e3 * (ended - began), decisions=decisions)
        if part.run is not None:
            session.judged_at = ended
            accepted = sum(ruling.stands for ruling in rulings)
            self._queue.judged(part.sequence, len(part.fresh), accepted, self._composer.price(session))
        part.sequence.answers += part.run is not None
        rejected = session.held - (len(session.tokens) - 1)
        session.held -= rejected
        if self._backend.max_rollback is not None and rejected > self._backend.max_rollback:
            self._rows.drop(session)
        _tell(session)

    def _refill(self, parts: Sequence[BatchItem], error: Exception) -> None:
        """Fail the guesses of `parts`; what their rows hold is in doubt and will be computed anew."""
        _log.error("a forward pass failed for %d sessions: %s", len(parts), error)
        for part in parts:
            self._rows.drop(part.sequence.session)
            waiting = [request for request in part.requests if not request.closed]
            self._queue.fail(part.sequence, waiting, EngineError(f"the engine failed: {error}"))

    def _room_in(self, session: Session) -> float:
        """Seconds until one of those who wait is answered, roughly; of its own, if it has its share."""
        passes, tokens = self._composer.first_answer(self._queue.in_the_way(session))
        under_way = 0.0 if self._running is None else self._step_time.at(self._running.tokens)
        return under_way + passes * self._step_time.at(tokens)


def _tell(session: Session) -> None:
    for watcher in session.watchers:
        watcher()
