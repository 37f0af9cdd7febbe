"""The queue of waiting requests: bounded, placed against the committed tokens, answered in order of arrival."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Set
from itertools import count, takewhile

from specpair.fairness import FairTurns, retry_after, share_of_one_client
from specpair.protocol.errors import OverlapRefused, Overloaded, SpecPairError, UnknownSession
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT
from specpair.speculation.draft import Draft
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.engine.draft_credit import ClientCredit
from verifier_server.engine.sequence_state import SILENCE, SequenceState
from verifier_server.sessions import Session

PER_SESSION = 16  # requests of one session that may wait at once


class Queue:
    """Known sessions and their waiting requests. Times in seconds."""

    def __init__(self, max_drafts: int, max_queue: int, *, trees: bool = False) -> None:
        """`trees`: whether the engine judges draft trees; else it judges the likeliest chain of each."""
        self._max_drafts, self._max_queue, self._trees = max_drafts, max_queue, trees
        self._most_of_client = share_of_one_client(max_queue)
        self._sequences: dict[Session, SequenceState] = {}
        # Those that `active` describes, the longest silent first. They are few: no pass looks at all known sessions.
        self._active: OrderedDict[SequenceState, None] = OrderedDict()
        self._waiting: Counter[Hashable] = Counter()  # requests of each client that wait; 0 is never stored
        # What is known of clients outlives their sessions.
        self._remembered = ClientCredit()
        self._turns = FairTurns[SequenceState](lambda sequence: sequence.client)
        self._numbers = count(1)  # the order of arrivals and passes

    def __getitem__(self, session: Session) -> SequenceState:
        return self._sequences[session]

    @property
    def sequences(self) -> Iterable[SequenceState]:
        """All known sessions."""
        return self._sequences.values()

    @property
    def waiting(self) -> list[SequenceState]:
        """Sessions with a waiting request, in turns of their clients; of one client, the longest without a pass first.

        The arrival of single requests does not count: a session with many of them would always be first.
        """
        return self.in_turns([each for each in self._active if each.requests], lambda sequence: sequence.turn)

    @property
    def size(self) -> int:
        """How many requests wait. Thread-safe."""
        return self._waiting.total()

    @property
    def is_full(self) -> bool:
        """Whether no more requests may wait, whoever sends them. Thread-safe."""
        return self.size >= self._max_queue

    @property
    def active(self) -> Set[SequenceState]:
        """Sessions that wait, or were heard of within the last `SILENCE` seconds, as of the last `drop_silent`."""
        return self._active.keys()

    def in_turns(
        self, sequences: Iterable[SequenceState], order: Callable[[SequenceState], int]
    ) -> list[SequenceState]:
        """Sort `sequences` so that clients take turns, those of one by `order`."""
        return self._turns.order(sorted(sequences, key=order))

    def served(self, sequence: SequenceState) -> None:
        """Note that a pass feeds tokens for a session: its client had its turn."""
        self._turns.had_turn(sequence)

    def check_room(self, request: Request, room_in: Callable[[list[SequenceState]], float]) -> None:
        """Raise Overloaded if the queue has no room for `request`. Drops cancelled requests first.

        `room_in`: roughly how many seconds it takes until a request of one of these sessions is answered.
        """
        if request.admitted or self._overload(request.session) is None:
            return
        for each in self._active:
            self._remove(each, [waiting for waiting in each.requests if waiting.cancelled])
        if (overload := self._overload(request.session)) is not None:
            blocking, why = overload
            raise Overloaded(f"{why}: try again later", retry_after=retry_after(room_in(blocking)))

    def _overload(self, session: Session) -> tuple[list[SequenceState], str] | None:
        """Why no more requests of `session` may wait, and the sessions that block: one needs an answer."""
        sequence, client = self._sequences.get(session), session.client
        if sequence is not None and len(sequence.requests) >= PER_SESSION:
            return [sequence], f"{len(sequence.requests)} requests of session {session.id} are already waiting"
        if client is not None and self._waiting[client] >= self._most_of_client:
            why = f"{self._waiting[client]} of your requests are already waiting, the most for one client"
            return [each for each in self.waiting if each.client == client], why
        return (self.waiting, f"{self.size} requests are already waiting") if self.is_full else None

    def add(self, request: Request, now: float) -> SequenceState:
        """Queue a request; returns the state of its session.

        Raises UnknownSession if its session was removed. Raises OverlapRefused if another request of the session waits
        and the accepted tokens would depend on which of the two is judged first.
        """
        if request.session.gone:
            raise UnknownSession(f"session {request.session.id} was deleted before this request was queued")
        sequence = self._sequence(request.session)
        request.submitted = request.since = now
        if request.session.strategy not in DRAFTER_INVARIANT:
            # A duplicate does not overlap. One submitted before the last pass ended does, too: by chance it is handled
            # before or after that pass.
            others = [other for other in sequence.requests if not other.cancelled and other.draft != request.draft]
            if (others or now < sequence.judged_at) and self._compare(request, first=False):
                raise OverlapRefused(
                    f"another verify of session {request.session.id} is under way: with the strategy "
                    f"{request.session.strategy} the text would depend on timing: send one at a time"
                )
        if not sequence.requests:
            sequence.turn = next(self._numbers)
        sequence.add(request, now)
        self._turns.arrived(sequence)
        self._waiting[sequence.client] += 1
        self._active[sequence] = None
        self._active.move_to_end(sequence)
        return sequence

    def judged(self, sequence: SequenceState, drafts: int, accepted: int, price: float) -> None:
        """Note that a pass judged `drafts` draft tokens of a session, at `price` each, and accepted `accepted`."""
        sequence.draft_credit.judged(drafts, accepted, price)
        self._remembered.judged(sequence.client, sequence.draft_credit)

    def inherit(self, old: Session, new: Session) -> None:
        """Make `new` known, with the draft credit of `old`."""
        self._sequence(new).draft_credit = self._sequence(old).draft_credit

    def drop_silent(self, now: float) -> None:
        """Remove sessions from `active` that do not wait and were silent for longer than `SILENCE`."""
        for sequence in list(takewhile(lambda each: now - each.heard > SILENCE, self._active)):
            if not sequence.requests:
                del self._active[sequence]

    def settle(self, sequence: SequenceState, now: float, ran: Request | None = None, judged: int = 0) -> None:
        """Answer, in order of arrival, the requests that the committed tokens answer.

        `ran`: the request that a pass has just run, which judged `judged` of its draft tokens; it is answered, too, and
        its session goes to the end of the order.
        """
        if ran is not None:
            sequence.turn = next(self._numbers)
        for request in list(sequence.requests):
            if request.cancelled:
                self._remove(sequence, [request])
                continue
            try:
                waits = request is not ran and self._compare(request, first=request is sequence.requests[0])
            except SpecPairError as error:
                self.fail(sequence, [request], error)
                continue
            if not waits:
                self._answer(sequence, request, now, judged if request is ran else None)

    def fail(self, sequence: SequenceState, requests: list[Request], error: SpecPairError) -> None:
        """Answer `requests` with an error."""
        sequence.arrivals.over()
        self._remove(sequence, requests)
        for request in requests:
            request.done(error)

    def forget(self, session: Session) -> None:
        """Remove a session; its waiting requests fail with UnknownSession."""
        sequence = self._sequences.pop(session, None)
        if sequence is not None:
            error = UnknownSession(f"session {session.id} was deleted while its request was waiting")
            self.fail(sequence, list(sequence.requests), error)
            self._active.pop(sequence, None)

    def check(self) -> Iterable[str]:
        """Describe each inconsistency of the queue, for `Scheduler.check_integrity`."""
        for session, sequence in self._sequences.items():
            if session.gone:
                yield f"session {session.id} was removed and is still known"
            if sequence.requests and sequence not in self._active:
                yield f"session {session.id} waits and does not count as active"
            if session.decided_from + len(session.details.sources) != len(session.tokens):
                yield f"session {session.id}: the sources of its tokens are not one each"
        waiting = Counter(each.client for each in self._sequences.values() for _ in each.requests)
        if waiting != self._waiting:
            yield f"requests of clients wait: {dict(waiting)}, counted: {dict(self._waiting)}"
        for sequence in self._active:
            if self._sequences.get(sequence.session) is not sequence:
                yield f"session {sequence.session.id} is unknown and counts as active"

    def _sequence(self, session: Session) -> SequenceState:
        sequence = self._sequences.get(session)
        if sequence is None:
            # If the text depends on which draft tokens are judged, it must not depend on the client's other texts.
            known = session.client if session.strategy in DRAFTER_INVARIANT else None
            sequence = self._sequences[session] = SequenceState(session, self._remembered.draft_credit(known))
        return sequence

    def _compare(self, request: Request, first: bool) -> bool:
        return request.compare(self._max_drafts, first, self._trees)

    def _answer(self, sequence: SequenceState, request: Request, now: float, judged: int | None) -> None:
        answer = request.answer(now, judged)
        if request.until_end and answer.finish_reason is None:
            request.draft = request.fresh = Draft(answer.total_tokens)
            request.since = now
            # It goes to the end of the order, like the request of a client that asks again at once.
            sequence.requests.remove(request)
            sequence.requests.append(request)
        else:
            self._remove(sequence, [request])
            if answer.finish_reason is None:
                _expect_next(sequence, request, answer, now)
            else:
                sequence.arrivals.over()
        request.done(answer)

    def _remove(self, sequence: SequenceState, requests: list[Request]) -> None:
        """Remove waiting requests of a session."""
        for request in requests:
            sequence.requests.remove(request)
        self._waiting[sequence.client] -= len(requests)
        if not self._waiting[sequence.client]:
            del self._waiting[sequence.client]


def _expect_next(sequence: SequenceState, request: Request, answer: Answer, now: float) -> None:
    """Tell the arrival estimator what an answered request means for the session's next one."""
    rejected = not request.draft.confirmed(answer.tokens)
    if rejected and not (answer.judged or answer.unjudged):
        sequence.arrivals.overtaken()
    elif rejected or not len(request.draft) or request.policy.next_in is None:
        sequence.arrivals.answered(now, request.policy.next_in)
    elif answer.judged:  # fully accepted: a client that drafts ahead has already sent the next request
        sequence.arrivals.answered(now, 0.0)
    else:  # all of it was committed before it was judged: when the next request will be in time is unknown
        sequence.arrivals.over()
