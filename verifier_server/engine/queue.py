"""The guesses that wait: taken in within bounds, placed against the record, answered in order of arrival."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable

from speculation.acceptance.strategies import DRAFTER_INVARIANT
from speculation.errors import OverlapRefused, SpecPairError, UnknownSession
from verifier_server.engine.draft_credit import ClientCredit
from verifier_server.engine.requests import Answer, Request
from verifier_server.engine.sequence_state import SILENCE, SequenceState
from verifier_server.sessions import Session

PER_SESSION = 16  # guesses of one session that may wait
CLIENTS = 4096  # whose turn is remembered


class Queue:
    """Sessions by what waits of them. Times in seconds."""

    def __init__(self, max_drafts: int, max_queue: int) -> None:
        self._max_drafts, self._max_queue = max_drafts, max_queue
        self._sequences: dict[Session, SequenceState] = {}
        self._waiting: dict[SequenceState, None] = {}  # those with a guess
        self._recent: OrderedDict[SequenceState, None] = OrderedDict()  # heard of lately, the longest silent first
        self._remembered = ClientCredit()
        self._arrivals = 0
        self._count = 0
        self._counts: Counter[str] = Counter()  # by client
        self._served: OrderedDict[str, int] = OrderedDict()  # when each client was part of a pass, among arrivals

    def __getitem__(self, session: Session) -> SequenceState:
        return self._sequences[session]

    def __len__(self) -> int:
        """Guesses that wait."""
        return self._count

    @property
    def sequences(self) -> Iterable[SequenceState]:
        """All sessions that are known."""
        return self._sequences.values()

    @property
    def waiting(self) -> list[SequenceState]:
        """Sessions with a guess, the one first that has been waiting for a pass the longest.

        Not by the arrival of their guesses: a session with many of them waiting would always be the first. Clients
        take turns, so that one with many sessions pushes nobody out.
        """
        return self.in_turns(self._waiting, lambda sequence: sequence.turn)

    @property
    def recent(self) -> Iterable[SequenceState]:
        """Sessions heard of within the last seconds, as of the last `drop_silent`."""
        return self._recent

    def in_turns(
        self, sequences: Iterable[SequenceState], order: Callable[[SequenceState], int]
    ) -> list[SequenceState]:
        """The first of each client by `order`, then the second of each, and so on.

        Of two clients the one first that was part of a pass the longest ago; one that was of none: that came first.
        """
        before: Counter[str] = Counter()
        came: dict[str, int] = {}
        places: list[tuple[int, SequenceState]] = []
        for sequence in sorted(sequences, key=order):
            client = sequence.session.client
            came[client] = min(came.get(client, sequence.turn), sequence.turn)
            places.append((before[client], sequence))
            before[client] += 1
        served = {client: self._served.get(client, turn) for client, turn in came.items()}
        places.sort(key=lambda each: (each[0], served[each[1].session.client]))
        return [sequence for _, sequence in places]

    def served(self, sequence: SequenceState) -> None:
        """A pass feeds for this session."""
        self._arrivals += 1
        self._served[sequence.session.client] = self._arrivals
        self._served.move_to_end(sequence.session.client)
        if len(self._served) > CLIENTS:
            self._served.popitem(last=False)

    def in_the_way(self, session: Session) -> list[SequenceState]:
        """Those of whom one is to be answered before one more guess of `session` may wait; empty: it may now."""
        sequence, client = self._sequences.get(session), session.client
        if sequence is not None and len(sequence.requests) >= PER_SESSION:
            return [sequence]
        if client and self._counts[client] >= self._share:
            return [each for each in self.waiting if each.session.client == client]
        return self.waiting if self._count >= self._max_queue else []

    @property
    def _share(self) -> int:
        """How many guesses of one client may wait: three quarters of all. The rest is for others."""
        return self._max_queue - self._max_queue // 4

    def fullness(self, session: Session) -> str:
        """Why no more guesses of `session` may wait, in words."""
        sequence = self._sequences.get(session)
        if sequence is not None and len(sequence.requests) >= PER_SESSION:
            return f"{len(sequence.requests)} guesses of session {session.id} wait already"
        if session.client and self._counts[session.client] >= self._share:
            return f"{self._counts[session.client]} guesses of yours wait, as many as one client may have waiting"
        return f"{self._count} guesses wait already"

    def has_room(self, session: Session) -> bool:
        """Whether one more guess of `session` may wait."""
        if not self.in_the_way(session):
            return True
        before = self._count
        for each in list(self._waiting):
            self._remove(each, [request for request in each.requests if request.cancelled])
        return self._count < before and self.has_room(session)

    def add(self, request: Request, now: float) -> SequenceState:
        """Take in a guess: the seat of its session.

        Raises UnknownSession when its session was forgotten, and OverlapRefused for a guess that comes while another
        one waits, where what stands would depend on which of them is judged first.
        """
        if request.session.gone:
            raise UnknownSession(f"session {request.session.id} was deleted before its guess came")
        sequence = self._sequence(request.session)
        request.submitted = now
        if request.session.strategy not in DRAFTER_INVARIANT:
            self._check_overlap(sequence, request)
        self._line_up(request, now)
        if not sequence.requests:
            sequence.turn = request.number
        sequence.hear(request, now)
        self._count += 1
        self._counts[sequence.session.client] += 1
        self._waiting[sequence] = None
        self._recent[sequence] = None
        self._recent.move_to_end(sequence)
        return sequence

    def judged(self, sequence: SequenceState, drafts: int, accepted: int, price: float) -> None:
        """A pass has judged so many drafts of a session, at that price each."""
        sequence.draft_credit.judged(drafts, accepted, price)
        self._remembered.judged(sequence.session.client, sequence.draft_credit)

    def succeed(self, old: Session, new: Session) -> None:
        """Let `new` be known from here on, with the credit of `old`."""
        self._sequence(new).draft_credit = self._sequence(old).draft_credit

    def drop_silent(self, now: float) -> None:
        """Let sessions that nothing was heard of for a while count as recent no more."""
        while self._recent:
            sequence = next(iter(self._recent))
            if now - sequence.heard <= SILENCE:
                return
            del self._recent[sequence]

    def settle(self, sequence: SequenceState, now: float, ran: Request | None = None, judged: int = 0) -> None:
        """Answer, in order of arrival, what the record answers: `ran` too, if a pass has just judged `judged` drafts
        of it. Then its session queues anew."""
        if ran is not None:
            self._arrivals += 1
            sequence.turn = self._arrivals
        for request in list(sequence.requests):
            if request.cancelled:
                self._remove(sequence, [request])
                continue
            try:
                waits = request is not ran and request.place(self._max_drafts, first=request is sequence.requests[0])
            except SpecPairError as error:
                self.fail(sequence, [request], error)
                continue
            if not waits:
                self._answer(sequence, request, now, judged if request is ran else None)

    def fail(self, sequence: SequenceState, requests: list[Request], error: SpecPairError) -> None:
        """Answer `requests` with an error."""
        sequence.arrivals.over()
        for request in self._remove(sequence, requests):
            request.done(error)

    def forget(self, session: Session) -> None:
        """Let go of a session; what waits of it fails."""
        sequence = self._sequences.pop(session, None)
        if sequence is not None:
            error = UnknownSession(f"session {session.id} was deleted while its guess was waiting")
            self.fail(sequence, list(sequence.requests), error)
            self._recent.pop(sequence, None)

    def check(self) -> Iterable[str]:
        """What does not add up, in words."""
        if self._count != sum(len(sequence.requests) for sequence in self._sequences.values()):
            waiting = sum(len(sequence.requests) for sequence in self._sequences.values())
            yield f"{self._count} requests are counted, {waiting} wait"
        for session, sequence in self._sequences.items():
            if session is not sequence.session or session.gone:
                yield f"session {session.id} is gone and still known"
            if bool(sequence.requests) != (sequence in self._waiting):
                waits = sequence in self._waiting
                yield f"session {session.id} has {len(sequence.requests)} requests and waits: {waits}"
            if any(request.closed or request.session is not session for request in sequence.requests):
                yield f"session {session.id}: an answered guess waits, or another session's"
            if [request.number for request in sequence.requests] != sorted(
                request.number for request in sequence.requests
            ):
                yield f"session {session.id}: its guesses are out of order"
            if session.own_from != sorted(set(session.own_from)):
                yield f"session {session.id}: its own steps overlap"
        for sequence in [*self._waiting, *self._recent]:
            if self._sequences.get(sequence.session) is not sequence:
                yield f"session {sequence.session.id} is unknown, and waits or counts as recent"

    def _sequence(self, session: Session) -> SequenceState:
        sequence = self._sequences.get(session)
        if sequence is None:
            # Where the text depends on which drafts are judged, it must not depend on the client's other texts.
            known = session.client if session.strategy in DRAFTER_INVARIANT else ""
            sequence = self._sequences[session] = SequenceState(session, self._remembered.draft_credit(known))
        return sequence

    def _check_overlap(self, sequence: SequenceState, request: Request) -> None:
        """One guess at a time; but the same one may come again, and what the record answers waits for nothing."""
        others = [other for other in sequence.requests if not other.cancelled and not other.same_as(request)]
        # Whether it came before or behind the pass that has just ended is for chance to decide.
        overlaps = others or request.submitted < request.session.judged_at
        if overlaps and request.place(self._max_drafts, first=False):
            raise OverlapRefused(
                f"another verify of session {request.session.id} is under way: with the strategy "
                f"{request.session.strategy} the text would depend on timing: send one at a time"
            )

    def _line_up(self, request: Request, now: float) -> None:
        self._arrivals += 1
        request.number, request.since = self._arrivals, now

    def _answer(self, sequence: SequenceState, request: Request, now: float, judged: int | None) -> None:
        answer = request.answer(now, judged)
        if request.until_end and answer.finish_reason is None:
            request.position, request.fresh = answer.total_tokens, []
            sequence.requests.remove(
                request
            )  # behind those who have waited longer, like a client that asks again at once
            sequence.requests.append(request)
            self._line_up(request, now)
        else:
            self._remove(sequence, [request])
            if answer.finish_reason is None:
                _expect_next(sequence, request, answer, now)
            else:
                sequence.arrivals.over()
        request.done(answer)

    def _remove(self, sequence: SequenceState, requests: list[Request]) -> list[Request]:
        for request in requests:
            sequence.requests.remove(request)
            request.closed = True
        self._count -= len(requests)
        self._counts[sequence.session.client] -= len(requests)
        if not self._counts[sequence.session.client]:
            del self._counts[sequence.session.client]
        if not sequence.requests:
            self._waiting.pop(sequence, None)
        return requests


def _expect_next(sequence: SequenceState, request: Request, answer: Answer, now: float) -> None:
    """What an answered guess says of the next one."""
    fell = answer.accepted < len(request.drafts)
    if fell and not (answer.judged or answer.unjudged):
        sequence.arrivals.overtaken()
    elif fell or not request.drafts or request.next_in is None:
        sequence.arrivals.answered(now, request.next_in)
    elif answer.judged:  # all of it stood: a client that can tell what comes next has sent on
        sequence.arrivals.answered(now, 0.0)
    else:  # overtaken by what was committed meanwhile: when the next will be in time, nobody knows
        sequence.arrivals.over()
