"""The engine thread: joins what all sessions want into one forward pass after another.

Prefill, verify, plain decoding and recomputing an evicted row are one thing here: feed what the row lacks of
the session's tokens, then the fresh drafts; judge from the last committed token on.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from backends.contract import Backend, BackendError, Entry, Logits
from speculation.acceptance import common_prefix, effective_sampling, judge
from speculation.errors import EngineError, SpecPairError, TooManyDrafts, UnknownSession
from speculation.positions import fresh_drafts
from verifier_server.rows import RowPool
from verifier_server.sessions import Session

_log = logging.getLogger("specpair.engine")
_TURN = 16  # tokens after which a session decoded to its end lets those behind it have the row


@dataclass(slots=True)
class Answer:
    """What a guess came to; the reply to `/verify` says the same."""

    position: int
    tokens: list[int]  # committed from `position` on
    accepted: int  # leading drafts equal to committed tokens
    judged: int  # drafts the model ran for this answer
    total_tokens: int
    finish_reason: str | None
    queue_ms: float
    forward_ms: float


@dataclass(eq=False, slots=True)
class Job:
    """A guess waiting for its answer. `done` is called once, from the engine's thread.

    With `until_end` the session is decoded to its end, and `done` is called after every pass.
    """

    session: Session
    position: int
    drafts: list[int]
    done: Callable[[Answer | SpecPairError], None]
    until_end: bool = False
    submitted: float = 0.0
    started: float = 0.0
    forward: float = 0.0
    fresh: list[int] | None = None
    cancelled: bool = False


class Engine:
    """Owns the backend and, with its thread, every session's committed tokens."""

    def __init__(self, backend: Backend, max_drafts: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.backend = backend
        self.max_drafts = min(max_drafts, backend.max_batch_tokens - 1)  # a guess is judged in one pass
        self.failure: str | None = None  # why the thread died, if it did
        self._clock = clock
        self._rows = RowPool(backend.rows, backend.release)
        self._wake = threading.Condition()
        self._inbox: list[Job] = []
        self._forgotten: list[Session] = []
        self._waiting: list[Job] = []  # in order of arrival
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the pass under way and free the model; what waits is answered with an error."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()
        self.backend.close()

    def submit(self, job: Job) -> None:
        """Queue a job. From any thread."""
        job.submitted = self._clock()
        with self._wake:
            if self._stopping:
                job.done(EngineError("the engine has stopped: the verifier is shutting down or has failed"))
                return
            self._inbox.append(job)
            self._wake.notify()

    def forget(self, session: Session) -> None:
        """Give up the row of a session that is gone. From any thread."""
        with self._wake:
            if not self._stopping:
                self._forgotten.append(session)
                self._wake.notify()

    def _run(self) -> None:
        reason = "the verifier is shutting down"
        try:
            while self._wait():
                self.step()
        except Exception:
            _log.exception("the engine thread died")
            self.failure = reason = "the engine thread died: see the verifier's log, and restart it"
        with self._wake:
            self._stopping = True
            self._waiting += self._inbox
        self._fail(list(self._waiting), EngineError(reason))

    def _wait(self) -> bool:
        """Wait for something to do; False when it is time to stop."""
        with self._wake:
            while not (self._inbox or self._forgotten or self._waiting or self._stopping):
                self._wake.wait()
            return not self._stopping

    def _take_in(self) -> None:
        """What came since the last pass."""
        with self._wake:
            self._waiting += self._inbox
            self._inbox = []
            forgotten, self._forgotten = self._forgotten, []
        for session in forgotten:
            self._rows.drop(session)
            orphans = [job for job in self._waiting if job.session is session]
            self._fail(orphans, UnknownSession(f"session {session.id} was deleted while its guess was waiting"))
        self._waiting = [job for job in self._waiting if not job.cancelled]

    def step(self) -> None:
        """One forward pass over the first job of every session, as far as rows and the batch limit reach."""
        self._take_in()
        chosen, batch = self._plan()
        if not chosen:
            return
        began = self._clock()
        for job in chosen:
            job.started = job.started or began
        try:
            logits = self.backend.extend(batch)
        except BackendError as error:
            self._refill(chosen, error)
            return
        took = self._clock() - began
        for job, entry, rows in zip(chosen, batch, logits, strict=True):
            job.forward += took
            job.session.held = entry.start + len(entry.tokens)
            if len(rows):
                try:
                    self._conclude(job, rows)
                except ValueError as error:  # logits that hold a NaN, say; the other sessions are sound
                    self._refill([job], error)

    def _plan(self) -> tuple[list[Job], list[Entry]]:
        chosen: list[Job] = []
        batch: list[Entry] = []
        seen: set[int] = set()
        room = self.backend.max_batch_tokens
        for job in list(self._waiting):
            session = job.session
            if id(session) in seen or not self._needs_model(job):
                continue
            seen.add(id(session))
            if room <= 0 or not self._rows.take(session, [entry.row for entry in batch]):
                continue
            assert job.fresh is not None and session.row is not None
            feed = session.tokens[session.held :] + job.fresh
            judged_from = len(feed) - len(job.fresh) - 1
            if len(feed) > room:  # a chunk now, the judged part whole in a later pass
                feed = feed[: min(room, judged_from)]
                judged_from = len(feed)
            if feed:
                chosen.append(job)
                batch.append(Entry(session.row, session.held, feed, judged_from))
                room -= len(feed)
        return chosen, batch

    def _needs_model(self, job: Job) -> bool:
        """Place a job's guess against the record; answer it at once where the record suffices."""
        if job.fresh is not None:
            return True
        session = job.session
        try:
            fresh = fresh_drafts(
                session.tokens, session.prompt_len, session.finish_reason is not None, job.position, job.drafts
            )
            if fresh is not None and len(fresh) > self.max_drafts:
                raise TooManyDrafts(
                    f"{len(fresh)} new drafts, this verifier judges at most {self.max_drafts} at once",
                    limit=self.max_drafts,
                )
        except SpecPairError as error:
            self._fail([job], error)
            return False
        if fresh is None:
            self._answer(job, judged=0)
            return False
        # The last place before the limit is the target's own: a draft there would be judged for nothing.
        job.fresh = fresh[: session.limit - len(session.tokens) - 1]
        return True

    def _conclude(self, job: Job, rows: Logits) -> None:
        session, fresh = job.session, job.fresh or []
        ends = self.backend.vocabulary.ends
        sampling = effective_sampling(session.strategy, session.sampling)
        tokens = judge(fresh, rows, sampling, len(session.tokens), ends)
        session.commit(tokens, ends)
        rejected = session.held - (len(session.tokens) - 1)
        session.held -= rejected
        if self.backend.max_rollback is not None and rejected > self.backend.max_rollback:
            self._rows.drop(session)
        self._answer(job, judged=len(fresh))

    def _answer(self, job: Job, judged: int) -> None:
        session = job.session
        tokens = session.tokens[job.position :]
        answer = Answer(
            position=job.position,
            tokens=tokens,
            accepted=common_prefix(tokens, job.drafts),
            judged=judged,
            total_tokens=len(session.tokens),
            finish_reason=session.finish_reason,
            queue_ms=1e3 * ((job.started or self._clock()) - job.submitted),
            forward_ms=1e3 * job.forward,
        )
        if job.until_end and session.finish_reason is None:
            job.position, job.fresh = len(session.tokens), []
            if (len(session.tokens) - session.prompt_len) % _TURN == 0:
                self._waiting.remove(job)
                self._waiting.append(job)
        else:
            self._waiting.remove(job)
        job.done(answer)

    def _refill(self, jobs: list[Job], error: Exception) -> None:
        """Fail `jobs`; what their rows hold is in doubt and will be computed anew."""
        _log.error("a forward pass failed for %d sessions: %s", len(jobs), error)
        for job in jobs:
            self._rows.drop(job.session)
        self._fail(jobs, EngineError(f"the engine failed: {error}"))

    def _fail(self, jobs: list[Job], error: SpecPairError) -> None:
        for job in jobs:
            self._waiting.remove(job)
            job.done(error)
