"""Composes the next pass: its sessions, their order, the tokens fed for each, and the slots taken for them.

Verify requests come first, in order of arrival. Then come prompts (and texts whose slot was taken), the least recently
served first and together at most one chunk. Then come self-continuation steps. A client's request that arrived while a
chunk was prefilled gets a pass without a chunk, so that prompts delay no request by more than one chunk.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from specpair.engines.backend import Backend, Entry, TopLogitsSpec
from specpair.engines.errors import BackendError
from specpair.engines.prompt_passes import prompt_pass
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT
from specpair.speculation.draft import NO_DRAFT, Draft, DraftSource, DraftToken, TreeLimits
from specpair.speculation.policy.cost_by_width import CostByWidth
from specpair.speculation.sampling.sampling import top_logits_spec
from verifier_server.engine.arrived_drafts import Request
from verifier_server.engine.draft_credit import price, worth_judging
from verifier_server.engine.head_drafts import HeadQuestion
from verifier_server.engine.pass_time import PassTime
from verifier_server.engine.queue import Queue
from verifier_server.engine.sequence_state import SILENCE, SequenceState
from verifier_server.engine.slots import Slot, SlotPool
from verifier_server.sessions import Session

_TURN = 16  # passes that bring a session tokens before a waiting one may take its slot: reading a text again is slow
_PATIENCE = 8  # passes without prefill after which waiting prompts go first


@dataclass(slots=True)
class BatchItem:
    """One session's share of a pass. The pass may answer its waiting requests. The backend gets its `Entry` only."""

    sequence: SequenceState
    run: Request | None  # the request whose draft tokens are judged; None: a self-continuation step
    requests: list[Request]  # all requests that the pass answers, `run` included
    # New draft tokens of `run` to judge, as many as the draft credit allows; in a self-continuation step those that the
    # target's own head predicts.
    fresh: Draft

    @property
    def question(self) -> HeadQuestion:
        """What comes behind the draft tokens so far."""
        session = self.sequence.session
        return HeadQuestion(session, len(session.tokens), self.fresh.ids)


@dataclass(slots=True)
class BatchPlan:
    """The next pass: `parts[i]` says what `batch[i]` is for.

    `backend`: the engine. If it has an `even_width`, generated tokens that a slot lacks are fed in pieces no wider than
    this, and apart from the prompt. So the slot holds the same KV entries as when these tokens were decoded, and the
    text continues as it would have.
    `room`: tokens that may still be added.
    """

    backend: Backend
    room: int
    batch: list[Entry] = field(default_factory=list)
    parts: list[BatchItem] = field(default_factory=list)
    holds_chunk: bool = False  # whether the pass prefills part of a prompt
    head_time: float = 0.0  # seconds for which the target's own head has predicted tokens before the pass

    @property
    def tokens(self) -> int:
        """How many tokens the pass feeds."""
        return sum(len(entry.tokens) for entry in self.batch)

    def top_logits_specs(self, vocabulary_size: int) -> list[TopLogitsSpec]:
        """For each entry: the top logits of its rows that suffice to sample the target's token.

        Logit processors and log probabilities need every row whole. The strategies probabilistic and threshold, and
        explained decisions, need some: these are fetched later, one for each draft token that is judged. Top logits as
        large as the vocabulary would make the device sort every row.
        """
        sessions = [part.sequence.session for part in self.parts]
        return [top_logits_spec(each.rule.sampling, vocabulary_size, whole=each.whole_rows) for each in sessions]

    def predicted(self, at: int, token: int) -> bool:
        """Add a token that the head predicted to part number `at`. Returns whether another one may follow it."""
        part, entry = self.parts[at], self.batch[at]
        session, tokens = part.sequence.session, (*part.fresh, DraftToken(token, source=DraftSource.HEAD))
        part.fresh = Draft(len(session.tokens), tokens)
        self.batch[at] = entry = entry._replace(tokens=[*entry.tokens, token])
        self.room -= 1
        ended = token in self.backend.vocabulary.ends
        left = min(session.limit - len(session.tokens) - 1 - len(tokens), self.backend.context_length - entry.end)
        return not ended and left > 0 and self.room > 0

    def add(self, part: BatchItem, slot: Slot, most: int) -> int:
        """Feed the tokens that the session's `slot` lacks, then the draft tokens, at most `most` in all.

        Returns how many tokens it fed. What is judged (the last committed token and the draft tokens) goes into one
        pass as a whole. If there is no room for it, as many of the other tokens as fit are fed, and it is judged in a
        later pass.
        """
        session = part.sequence.session
        feed = session.tokens[slot.held :] + part.fresh.ids
        judged_from = len(feed) - len(part.fresh) - 1
        most, even = min(most, self.room), self.backend.even_width
        left = session.prompt_len - slot.held
        if even is not None and judged_from:
            if left <= 0:
                most = min(most, even)
            elif len(session.tokens) > session.prompt_len:
                most = min(most, left)
        if left > 0:
            most = min(most, prompt_pass(self.backend, slot.held, session.prompt_len, len(feed), most))
        if len(feed) > most:
            feed = feed[: min(most, judged_from)]
            judged_from = len(feed)
        if feed:
            parents = part.fresh.parents if judged_from < len(feed) and not part.fresh.is_chain else ()
            self.batch.append(Entry(slot.number, slot.held, feed, judged_from, parents))
            self.parts.append(part)
            self.room -= len(feed)
        return len(feed)


class Composer:
    """Chooses what each pass feeds."""

    def __init__(
        self,
        backend: Backend,
        slots: SlotPool,
        queue: Queue,
        pass_time: PassTime,
        chunk: int,
        max_drafts: int,
        pass_times: Sequence[float],
    ) -> None:
        """`pass_time`: of this engine.
        `chunk`: prompt tokens in a pass, at most, while other sessions are active.
        `max_drafts`: draft tokens of a session in a pass, at most.
        `pass_times`: seconds of passes over 1, 2, … tokens; empty if unknown.
        """
        self._backend, self._slots, self._queue, self._price = backend, slots, queue, price(pass_times)
        self._pass_times = CostByWidth.of(pass_times)
        self._pass_time = pass_time
        self._chunk, self._max_drafts = min(chunk, backend.max_batch_tokens), max_drafts
        self._left_out = 0  # passes in a row that fed none of the waiting prompts
        self._kept_at: float | None = None  # when sessions keep slots for the next request; None: no session does
        self.chunk_over = -inf  # when the last pass ended that prefilled part of a prompt, in seconds

    def compose(self, waiting: list[SequenceState], continuing: list[SequenceState], now: float) -> BatchPlan:
        """The next pass for the sessions `waiting` (by arrival) and those `continuing`, which may self-continue.

        A session whose next request is expected keeps its slot until its turn is over. Else texts of which there are
        more than slots would lose them while a message is on its way, and most passes would read them again.

        It is never empty if a session waits: each slot belongs to a waiting session, or can be taken from a session
        that does not wait. So no slot is kept for a session that does not wait unless one that waits has a slot.
        """
        self._kept_at = now if any(sequence.session in self._slots for sequence in waiting) else None
        plan = BatchPlan(self._backend, self._backend.max_batch_tokens)
        verifies: list[BatchItem] = []
        prompts: list[BatchItem] = []
        active = (each for each in self._queue.active if each.requests or each.session.finish_reason is None)
        shared = len(list(islice(active, 2))) > 1  # more than one session waits, or may send while the pass runs
        for sequence in self._after_turns(waiting):
            run, requests = sequence.choose(self._max_drafts)
            part = BatchItem(sequence, run, requests, self._judged_now(run.fresh, sequence, shared))
            (verifies if self._slots.unread(sequence.session) == 0 else prompts).append(part)
        self._drop_costly_drafts(verifies, len(continuing))
        prompts_first = bool(prompts) and self._left_out >= _PATIENCE
        if prompts_first:
            self._add_prompts(plan, prompts, shared)
        for part in verifies:
            if self._ensure_slot(part.sequence):
                plan.add(part, self._slots[part.sequence.session], plan.room)
        if not prompts_first:
            if self._waited_for_chunk(plan):
                self._left_out += bool(prompts)
            else:
                self._add_prompts(plan, prompts, shared)
        for sequence in sorted(continuing, key=lambda sequence: sequence.served):
            if plan.room and sequence.session in self._slots:  # a request above may have taken its slot
                plan.add(BatchItem(sequence, None, [], NO_DRAFT), self._slots[sequence.session], plan.room)
        return plan

    def _waited_for_chunk(self, plan: BatchPlan) -> bool:
        """Whether the pass runs a client's request that a chunk has delayed.

        Requests of server-side drafting do not count: all come together after each pass, and prompts that they leave
        out get a pass of their own while the draft model runs, for which the next ones wait.
        """
        runs = (part.run for part in plan.parts if part.run is not None and not part.run.admitted)
        return any(run.since < self.chunk_over for run in runs)

    def _drop_costly_drafts(self, parts: list[BatchItem], others: int) -> None:
        """Judge only the draft tokens that bring the most tokens per second to all sessions of a shared pass.

        Only where their chances are known, as with server-side drafting, and where the text does not depend on it.
        `others`: sessions in the pass beside those of `parts`.
        """
        if len(parts) + others < 2 or len(self._pass_times) < 2:
            return
        rated = [
            part
            for part in parts
            if part.sequence.session.strategy in DRAFTER_INVARIANT
            and part.fresh.is_chain
            and all(each.chance is not None for each in part.fresh)
        ]
        width = len(parts) + others + sum(len(part.fresh) for part in parts if part not in rated)
        chances = [[each.chance or 0.0 for each in part.fresh] for part in rated]
        for part, most in zip(rated, worth_judging(chances, len(parts) + others, width, self._pass_times), strict=True):
            part.fresh = part.fresh.first(most)

    def price(self, session: Session) -> float:
        """Draft credit that a judged draft token of `session` costs, 0 to 1.

        With some strategies the text depends on how many draft tokens are judged, so this number must depend neither
        on other sessions nor on the time of passes. Such a session pays the full price, 1, and its credit also limits
        it while no other session is active.
        """
        return self._price if session.strategy in DRAFTER_INVARIANT else 1.0

    def width(self, sequences: list[SequenceState]) -> int:
        """Roughly how many tokens a pass over these sessions feeds."""
        prefill = min(sum(self._slots.unread(sequence.session) for sequence in sequences), self._chunk)
        return min(prefill + sum(sequence.width for sequence in sequences), self._backend.max_batch_tokens)

    def _add_prompts(self, plan: BatchPlan, parts: list[BatchItem], shared: bool) -> None:
        if not parts:
            self._left_out = 0
            return
        budget = self._chunk if shared else plan.room
        fed = 0
        part_of = {part.sequence: part for part in parts}
        for part in (part_of[sequence] for sequence in self._queue.in_turns(part_of, lambda sequence: sequence.served)):
            if plan.room and budget > fed and self._ensure_slot(part.sequence):
                session = part.sequence.session
                self._slots.share(session)
                if session.cached is None:
                    session.cached = min(self._slots.held(session), session.prompt_len)
                self._begin(session, min(plan.room, budget - fed))
                fed += plan.add(part, self._slots[session], budget - fed)
        self._left_out = 0 if fed else self._left_out + 1
        plan.holds_chunk = fed > 0

    def _begin(self, session: Session, room: int) -> None:
        """If this pass ends the prompt, commit the forced tokens after it, which it then reads, too. `room`: of the
        pass.
        """
        unread = self._slots.unread(session) + session.pending
        if unread > room or len(session.tokens) > session.prompt_len or self._backend.even_width is not None:
            return
        with suppress(ValueError, BackendError, InvalidRequest):  # judging the first token meets it again, and says so
            session.commit_forced(to_end=False)

    def _judged_now(self, fresh: Draft, sequence: SequenceState, shared: bool) -> Draft:
        """The new draft tokens of `sequence` that the next pass may judge. A tree is cut from its end, since parents
        stand before children. Each token takes a cell of the slot."""
        backend, session = self._backend, sequence.session
        most = backend.context_length - len(session.tokens)
        if shared or session.strategy not in DRAFTER_INVARIANT:
            allowed = sequence.draft_credit.drafts(self.price(session))
            most = most if allowed is None else min(allowed, most)
        return fresh.first(most).cut(TreeLimits(backend.max_leaves, backend.max_nodes))

    def _ensure_slot(self, sequence: SequenceState) -> bool:
        """Whether `sequence` has a slot or gets one.

        No session that is part of this pass loses its slot, since a request waits for each of them.
        """
        return sequence.session in self._slots or self._slots.acquire(sequence.session, may_lose=self._is_idle)

    def _is_idle(self, owner: Session) -> bool:
        """Whether no request of this session waits, and none is expected in its turn.

        One that is late keeps its slot for as long as it would take to read its text again: nobody knows when it comes,
        and so at most twice as much is lost as with foresight.
        """
        sequence, slot = self._queue[owner], self._slots[owner]
        if sequence.requests:
            return False
        if self._kept_at is None or slot.passes >= _TURN:
            return True
        return sequence.due_by + min(self._pass_time.at(slot.held), SILENCE) < self._kept_at

    def _after_turns(self, waiting: list[SequenceState]) -> list[SequenceState]:
        """`waiting`, without one session that has had its turn, if another session can get a slot only from it.

        At most one session per pass gives up its slot so, and it is left out of this pass: it cannot take the slot
        straight back.
        """
        lacking = sum(sequence.session not in self._slots for sequence in waiting)
        if lacking <= self._slots.available(self._is_idle):
            return waiting
        evicted = self._slots.evict(
            lambda owner: bool(self._queue[owner].requests) and self._slots[owner].answers >= _TURN
        )
        return [sequence for sequence in waiting if sequence.session is not evicted]
