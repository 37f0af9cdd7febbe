"""Who is part of the next pass, in which order, and who has to give up a row for it.

Guesses first, in order of arrival; then prompts (and texts whose row was taken), the least recently served first and
together no more than a chunk; then steps that sessions take by themselves. A guess that came while a chunk was read
gets a pass without one, so that prompts hold no guess up for longer than one chunk takes.
"""

import math
from itertools import accumulate
from math import inf

from backends.base import Backend
from speculation.acceptance.strategies import DRAFTER_INVARIANT
from verifier_server.engine.batch_plan import BatchItem, BatchPlan
from verifier_server.engine.queue import Queue
from verifier_server.engine.sequence_state import SequenceState
from verifier_server.engine.slots import SlotPool
from verifier_server.sessions import Session

_TURN = 16  # answers that a session gets out of its row before another that waits may have it: recomputing is dear
_PATIENCE = 8  # passes without prompts after which they go first


class Composer:
    """Fills passes. `chunk`: tokens of prompts in a pass while other sessions are active."""

    def __init__(
        self,
        backend: Backend,
        rows: SlotPool,
        queue: Queue,
        chunk: int,
        max_drafts: int,
        price: float,
    ) -> None:
        """`price`: what a judged draft costs, as `draft_credit` counts."""
        self._backend, self._rows, self._queue, self._price = backend, rows, queue, price
        self._chunk, self._max_drafts = min(chunk, backend.max_batch_tokens), max_drafts
        self._left_out = 0  # passes since a prompt that waits was fed
        self.chunk_over = -inf  # when the last pass ended that held one beside other sessions

    def compose(self, waiting: list[SequenceState], going_on: list[SequenceState]) -> BatchPlan:
        """The next pass for sessions that wait (by arrival) and such that may take a step of their own.

        It holds something whenever a session waits: some row belongs to one that waits, or to one that does not and
        can be taken from it.
        """
        plan = BatchPlan(self._backend.max_batch_tokens, self._backend.even_width)
        guesses: list[BatchItem] = []
        prompts: list[BatchItem] = []
        shared = len(self._active()) > 1
        for sequence in self._after_turns(waiting):
            run, requests = sequence.choose(self._max_drafts)
            most = self._allowed(sequence, shared)
            part = BatchItem(sequence, run, requests, run.fresh[:most], run.fresh_proposals[:most])
            (guesses if sequence.lacking == 1 else prompts).append(part)
        if prompts and self._left_out >= _PATIENCE:
            self._add_prompts(plan, prompts)
            self._add_guesses(plan, guesses)
        else:
            self._add_guesses(plan, guesses)
            if any(part.run is not None and part.run.since < self.chunk_over for part in plan.parts):
                self._left_out += bool(prompts)
            else:
                self._add_prompts(plan, prompts)
        for sequence in sorted(going_on, key=lambda sequence: sequence.served):
            if plan.room and sequence.session.row is not None:  # a guess may just have taken it
                plan.add(BatchItem(sequence, None, [], []), plan.room)
        return plan

    def price(self, session: Session) -> float:
        """What a judged draft costs a session.

        Where the text depends on which drafts are judged, that must not depend on what others do, nor on what passes
        take: such a session pays the full price, and goes by its credit also while it is alone.
        """
        return self._price if session.strategy in DRAFTER_INVARIANT else 1.0

    def width(self, sequences: list[SequenceState]) -> int:
        """Tokens that a pass over these feeds, roughly."""
        read = min(sum(sequence.lacking - 1 for sequence in sequences), self._chunk)
        return min(
            read + sum(sequence.width - sequence.lacking + 1 for sequence in sequences), self._backend.max_batch_tokens
        )

    def first_answer(self, sequences: list[SequenceState]) -> tuple[int, int]:
        """How many passes it takes until one of these that wait is answered, and about how many tokens each feeds.

        Prompts are read by turns, a chunk in each pass, as many at a time as there are rows.
        """
        rows = self._backend.rows
        guesses = [sequence for sequence in sequences if sequence.lacking == 1]
        if guesses or not sequences:
            return 1, self.width(guesses[:rows])
        at_once = self._queue.in_turns(sequences, lambda sequence: sequence.served)[:rows]
        chunk = self._backend.max_batch_tokens if len(self._active()) == 1 else self._chunk
        turns = [min(sequence.lacking, chunk) for sequence in at_once]
        ends = accumulate(turns)
        passes = min(
            math.ceil(end / chunk) + (math.ceil(sequence.lacking / chunk) - 1) * math.ceil(sum(turns) / chunk)
            for sequence, end in zip(at_once, ends, strict=True)
        )
        return passes, min(sum(turns), chunk)

    def _add_guesses(self, plan: BatchPlan, parts: list[BatchItem]) -> None:
        for part in parts:
            if self._seated(part.sequence):
                plan.add(part, plan.room)

    def _add_prompts(self, plan: BatchPlan, parts: list[BatchItem]) -> None:
        if not parts:
            self._left_out = 0
            return
        budget = plan.room if self._alone(parts) else self._chunk
        fed = 0
        by_seat = {part.sequence: part for part in parts}
        for part in (by_seat[sequence] for sequence in self._queue.in_turns(by_seat, lambda sequence: sequence.served)):
            if plan.room and budget > fed and self._seated(part.sequence):
                self._rows.share(part.sequence.session)
                fed += plan.add(part, budget - fed)
        self._left_out = 0 if fed else self._left_out + 1
        plan.holds_chunk = fed > 0

    def _alone(self, parts: list[BatchItem]) -> bool:
        """Whether these are of a single session, and no other one is active."""
        return len(parts) == 1 and len(self._active()) == 1

    def _active(self) -> set[SequenceState]:
        """Sessions that wait, or whose next guess may come while a pass is under way."""
        return {sequence for sequence in self._queue.recent if sequence.session.finish_reason is None}.union(
            self._queue.waiting
        )

    def _allowed(self, sequence: SequenceState, shared: bool) -> int | None:
        """Drafts of `sequence` that the next pass may judge; None: all there are."""
        if not shared and sequence.session.strategy in DRAFTER_INVARIANT:
            return None
        return sequence.draft_credit.drafts(self.price(sequence.session))

    def _seated(self, sequence: SequenceState) -> bool:
        """Whether `sequence` has a row, or gets one: a free one, or that of a session for which nothing waits.

        Nobody loses a row that is part of this pass, since something waits for all that are.
        """
        if sequence.session.row is None:
            idle = next((owner for owner in self._rows.owners() if not self._queue[owner].requests), None)
            if self._rows.free:
                self._rows.give(sequence.session)
            elif idle is not None:
                self._rows.take_over(idle, sequence.session)
            else:
                return False
            sequence.answers = 0
        return True

    def _after_turns(self, waiting: list[SequenceState]) -> list[SequenceState]:
        """`waiting`, less one session whose turn is over if somebody waits for a row and none else can be had.

        One a pass, and it is no part of this pass: so that taking rows does not go round in circles.
        """
        lacking = sum(sequence.session.row is None for sequence in waiting)
        if lacking > self._rows.free:
            owners = [self._queue[owner] for owner in self._rows.owners()]
            if lacking <= self._rows.free + sum(not owner.requests for owner in owners):
                return waiting
            for owner in owners:
                if owner.requests and owner.answers >= _TURN:
                    self._rows.drop(owner.session)
                    return [sequence for sequence in waiting if sequence is not owner]
        return waiting
