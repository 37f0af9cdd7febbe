"""Plans forward passes and applies their results: verify requests, chunks of prompts, self-continuation steps.

All sessions share each pass (continuous batching). Prefill, verify, plain decoding and recomputing an evicted slot are
the same here: feed the session's tokens that are not in its slot, then the new draft tokens; judge from the last
committed token on. Nothing here waits, reads a clock or runs the model, so the same code runs in virtual time:

    plan = scheduler.plan(now)        None: call again after a `submit`, or at `scheduler.wake_at`
    scheduler.predict(plan, clock)    the target's own head predicts tokens for self-continuation steps
    rows = backend.extend_top_logits(plan.batch, plan.top_logits_specs(backend.vocabulary.size))
    scheduler.conclude(plan, rows, began, ended)
"""

import logging
from collections.abc import Callable, Sequence

from specpair.engines.backend import Backend, Entry, Rows
from specpair.engines.errors import BackendError, EngineFailure
from specpair.protocol.errors import EngineError, InvalidRequest, SpecPairError
from specpair.speculation.acceptance.judge import IndexedRows, explain, judge
from specpair.speculation.acceptance.token_sources import TokenDetails, marks_of, self_continued
from specpair.speculation.sampling.distribution import token_logprobs
from specpair.speculation.sampling.row_changes import ProcessedRows
from verifier_server.engine.arrived_drafts import Request
from verifier_server.engine.composer import BatchItem, BatchPlan, Composer
from verifier_server.engine.head_drafts import HeadDrafts
from verifier_server.engine.head_length import HeadLength
from verifier_server.engine.interface import EngineObserver, EngineState
from verifier_server.engine.pass_time import PassTime
from verifier_server.engine.pass_time import prefill_chunk as chosen_chunk
from verifier_server.engine.queue import Queue
from verifier_server.engine.sequence_state import LONGEST, SequenceState, window_until
from verifier_server.engine.slots import SlotPool
from verifier_server.sessions import Session

_log = logging.getLogger("specpair.engine")


class Inconsistent(Exception):
    """The scheduler's state is inconsistent; the message says where."""


class Scheduler:
    """Owns the waiting requests and the slots. Not thread-safe. Times are in seconds, on any clock."""

    def __init__(
        self,
        backend: Backend,
        *,
        max_drafts: int = 64,
        prefill_chunk: int | None = None,
        max_queue: int = 256,
        batching_window: float = LONGEST,
        pass_times: Sequence[float] = (),
        head_time: float = 0.0,
        most_kept: int | None = None,
        one_scope: bool = False,
        observer: EngineObserver = EngineObserver(),
    ) -> None:
        """`max_drafts`: draft tokens in one verify request, at most.
        `prefill_chunk`: prompt tokens in a pass, at most, while other sessions are active; None: by the time of passes.
        `max_queue`: requests that may wait.
        `batching_window`: the longest one, as a multiple of the time of the pass.
        `pass_times`: seconds of passes over 1, 2, … tokens; empty if unknown.
        `head_time`: seconds of a step of the target's own head.
        `most_kept`, `one_scope`: as for `SlotPool`.
        `observer`: is told of every pass.
        """
        self.max_drafts = min(max_drafts, backend.max_batch_tokens - 1)  # a draft is judged in one pass
        self.wake_at: float | None = None  # when to plan again at the latest, even if nothing was submitted
        self.backend = backend
        self._observer = observer
        self._batching_window = batching_window
        self._pass_time = PassTime(pass_times)
        self._queue = Queue(self.max_drafts, max_queue, trees=backend.takes_trees)
        self.slots = SlotPool(backend, most_kept, one_scope=one_scope)
        self.head_time = head_time
        self.head = HeadDrafts(backend, self.slots)
        self._head_length = HeadLength(pass_times, head_time, backend.head_depth)
        chunk = chosen_chunk(pass_times) if prefill_chunk is None else prefill_chunk
        self._composer = Composer(
            backend, self.slots, self._queue, self._pass_time, chunk, max_drafts=self.max_drafts, pass_times=pass_times
        )
        self._running: BatchPlan | None = None
        self._passes = 0  # planned so far
        self._window_opened: float | None = None  # when the pass that waits in the batching window could have started

    def submit(self, request: Request, now: float) -> None:
        """Queue a request. Raises Overloaded, with `retry_after` in seconds, and what `Queue.add` does."""
        self._queue.check_room(request, self._room_in)
        sequence = self._queue.add(request, now)
        if len(sequence.requests) == 1:
            sequence.served = self._passes  # it queues after the sessions that wait already

    def forget(self, session: Session) -> None:
        """Free the slot of a removed session; its waiting requests fail with UnknownSession."""
        self._queue.forget(session)
        session.gone = True
        if self._running is None or all(part.sequence.session is not session for part in self._running.parts):
            self.slots.retire(session)  # else `conclude` does, after the pass that is running
        session.notify()

    def replace(self, old: Session, new: Session) -> None:
        """Remove `old` as `forget` does; `new` gets its slot, with the prefix of tokens that both share."""
        self._queue.inherit(old, new)
        if self._running is None and old in self.slots:
            self.slots.replace(old, new)
        self.forget(old)

    def plan(self, now: float) -> BatchPlan | None:
        """The next pass, or None if there is nothing to run now. Answers what the committed tokens answer already."""
        if self._running is not None:
            raise RuntimeError("the last pass was not concluded: call conclude() or failed() before plan()")
        self.wake_at = None
        self._queue.drop_silent(now)
        for sequence in self._queue.waiting:
            self._queue.settle(sequence, now)
        waiting, quiet = self._queue.waiting, [sequence for sequence in self._queue.active if not sequence.requests]
        continuing = [each for each in quiet if each.may_continue(self.slots.unread(each.session))]
        ready = waiting or self._due(continuing, now)
        if not ready:
            self._window_opened = None
            return None
        others = quiet if waiting else [sequence for sequence in quiet if sequence not in continuing]
        if self._waits_for(others, ready, now):
            return None
        self._window_opened = None
        self._running = plan = self._composer.compose(waiting, continuing, now)
        self._passes += 1
        for part in plan.parts:
            part.sequence.served = self._passes
            self._queue.served(part.sequence)
            self.slots.use(part.sequence.session)
        return plan

    def predict(self, plan: BatchPlan, clock: Callable[[], float]) -> None:
        """Have the target's own head predict tokens for the self-continuation steps of `plan`, which judges them.

        `clock`: in seconds. What the engine raises for the head only ends that.
        """
        alone = [at for at, part in enumerate(plan.parts) if self._may_predict(part, plan.batch[at])]
        length = self._head_length.best(len(alone), plan.tokens, len(plan.parts) - len(alone))
        try:
            for _ in range(min(length, plan.room // len(alone)) if alone else 0):
                began = clock()
                asked = [plan.parts[at] for at in alone]
                found = self.head.answer([each.question for each in asked])
                took = clock() - began
                self._head_length.took(took)
                plan.head_time += took
                alone = [at for at, each in zip(alone, found, strict=True) if each and plan.predicted(at, each.token)]
                if not alone:
                    break
        except BackendError as error:
            _log.warning("%s: it predicts nothing in this step", error)

    def _may_predict(self, part: BatchItem, entry: Entry) -> bool:
        """Whether the head may predict tokens for this part of a pass: a self-continuation step whose draft tokens are
        accepted or not without a change of the text."""
        session, judged = part.sequence.session, entry.logits_from < len(entry.tokens)
        room = min(session.limit - len(session.tokens) - 1, self.backend.context_length - entry.end)
        return part.run is None and judged and session.strategy.extends and room > 0

    def conclude(self, plan: BatchPlan, brought: Sequence[Rows], began: float, ended: float) -> None:
        """Judge and commit tokens after a pass over `plan.batch`, answer the requests, notify the watchers.

        `brought[i]`: rows of logits, or of top logits, for `plan.batch[i]`. The pass ran from `began` to `ended`.
        """
        self._running, tokens = None, plan.tokens
        for part, entry, rows in zip(plan.parts, plan.batch, brought, strict=True):
            session = part.sequence.session
            self.slots.fed(session)
            if session.gone:
                self.slots.retire(session)
                continue
            if (run := part.run) is not None:
                if run.started is None:
                    run.started = began
                    self._observer.waited(began - run.submitted)
                run.forward += ended - began
                run.sessions, run.pass_tokens = len(plan.parts), tokens
            if not len(rows):
                continue
            try:
                if self.backend.has_overflowed(self.slots[session].number):
                    raise EngineFailure("NaN or infinity in a forward pass")
                self._commit(part, entry, rows, ended - began + plan.head_time, ended)
            except (ValueError, BackendError, InvalidRequest) as error:  # a bad row, or one that cannot be fetched, or
                # a grammar that cannot be followed any further: others are intact
                self._fail_parts([part], error)
                continue
            self._queue.settle(part.sequence, ended, part.run, len(part.fresh))
        self._pass_time.learn(tokens, ended - began)
        prefilled = sum(entry.logits_from for entry in plan.batch)
        self._observer.passed(len(plan.parts), tokens, prefilled, ended - began)
        if plan.holds_chunk:
            self._composer.chunk_over = ended

    def failed(self, plan: BatchPlan, error: Exception) -> None:
        """Fail the requests of a pass that the backend could not run; the KV cache of its slots will be recomputed."""
        self._running = None
        self._fail_parts(plan.parts, error)

    @property
    def state(self) -> EngineState:
        """What the engine holds now. Thread-safe."""
        plan, waiting = self._running, self._queue.size
        running = 0 if plan is None else min(waiting, sum(len(part.requests) for part in plan.parts))
        return EngineState(
            waiting=waiting - running,
            running=running,
            full=self._queue.is_full,
            slots=self.backend.slots,
            slots_in_use=len(self.slots.owners),
            cached_tokens=self.slots.held_tokens,
            kept_tokens=self.slots.kept_tokens,
            context_length=self.backend.context_length,
            evictions=self.slots.evictions,
        )

    def abandon(self, error: SpecPairError) -> None:
        """Fail all waiting requests and notify the watchers: there will be no more passes."""
        for sequence in self._queue.sequences:
            self._queue.fail(sequence, list(sequence.requests), error)
            sequence.session.notify()

    def check_integrity(self) -> None:
        """Raise Inconsistent if sessions, slots and requests do not fit together."""
        faults = [*self.slots.check(), *self._queue.check()]
        if self._running is None and not self.slots.owners <= {each.session for each in self._queue.sequences}:
            faults.append("a slot belongs to a session that the queue does not know")
        if faults:
            raise Inconsistent("; ".join(faults))

    def _due(self, continuing: list[SequenceState], now: float) -> list[SequenceState]:
        """The `continuing` sessions whose self-continuation steps run now; sets `wake_at` if there are none.

        All of them do, as soon as one of them expects no request within half the time of the pass.
        """
        blocked = [sequence.blocked_until(now, self._pass_time.at(1) / 2) for sequence in continuing]
        if None in blocked:
            return continuing
        self.wake_at = min((until for until in blocked if until is not None), default=None)
        return []

    def _waits_for(self, others: list[SequenceState], ready: list[SequenceState], now: float) -> bool:
        """Whether the pass of the `ready` sessions waits for requests of `others`, until `wake_at`."""
        expected = [
            sequence.arrivals.latest
            for sequence in others
            if sequence.arrivals.latest is not None and sequence.session in self.slots
        ]
        if expected:
            self._window_opened = now if self._window_opened is None else self._window_opened
            pass_time = self._pass_time.at(self._composer.width(ready))
            last = self._window_opened + self._batching_window * pass_time
            self.wake_at = window_until(now, last, pass_time, len(ready), expected)
        return self.wake_at is not None

    def _commit(self, part: BatchItem, entry: Entry, rows: Rows, step: float, ended: float) -> None:
        """Judge and commit the tokens of one part of a pass. `step`: seconds of the pass, with the head's before it."""
        sequence, session, ends = part.sequence, part.sequence.session, self.backend.vocabulary.ends
        rule, position, alone = session.rule, len(session.tokens), part.run is None
        judged: IndexedRows = rows
        if session.processors is not None:
            session.processors.commit(session.tokens)
            judged = ProcessedRows(session.processors, rows, part.fresh.ids, entry.parents)
        rulings = judge(part.fresh.tokens, judged, rule, position, ends)
        tokens, accepted = [ruling.token for ruling in rulings], [ruling.accepted for ruling in rulings]
        lacking = 0
        if entry.parents:
            path = [each.draft for each in rulings if each.accepted and each.draft is not None]
            lacking = self.slots.keep(session, entry, [entry.trunk + each for each in path])
        explained, likeliest = session.spec.details_asked
        details = TokenDetails(
            self_continued(accepted, len(part.fresh))
            if alone
            else marks_of(accepted, len(part.fresh), rulings[-1].draft is not None),
            [*explain(rule, rulings, part.fresh.tokens, judged, position)] if explained else None,
            None if likeliest is None else [token_logprobs(rows[each.row], each.token, likeliest) for each in rulings],
        )
        session.commit(tokens, details, forward=step, lacking=lacking)
        if alone and len(part.fresh):
            self._head_length.learn(len(part.fresh), sum(accepted))
        elif not alone:
            sequence.judged_at = ended
            self._queue.judged(sequence, len(part.fresh), sum(accepted), self._composer.price(session))
            self.slots[session].answers += 1
        self.slots[session].passes += 1
        self.slots.roll_back(session)
        session.commit_forced()
        if session.finish_reason is not None:
            self.slots.retire(session)
        committed = len(session.tokens) - position
        sequence.tell(self._observer, committed, len(part.fresh), sum(accepted), alone, ended)
        session.notify()

    def _fail_parts(self, parts: Sequence[BatchItem], error: Exception) -> None:
        """Fail the requests of `parts`, and free their slots, whose content is unknown."""
        for part in parts:
            extra = {"session_id": part.sequence.session.id}
            told = error if isinstance(error, InvalidRequest) else EngineError(f"the engine failed: {error}")
            if told is not error:
                _log.error("a forward pass over %d sessions failed: %s", len(parts), error, extra=extra)
            self.slots.drop(part.sequence.session)
            waiting = [request for request in part.requests if request in part.sequence.requests]
            self._queue.fail(part.sequence, waiting, told)

    def _room_in(self, blocking: list[SequenceState]) -> float:
        """Estimated seconds until the engine answers a request of one of `blocking`, so that another may queue."""
        running = 0.0 if self._running is None else self._pass_time.at(self._running.tokens)
        return running + self._pass_time.at(self._composer.width(blocking))
