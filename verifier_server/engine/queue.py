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
        self._seats: dict[Session, SequenceState] = {}
        self._waiting: dict[SequenceState, None] = {}  # those with a guess
        self._recent: OrderedDict[SequenceState, None] = OrderedDict()  # heard of lately, the longest silent first
        self._remembered = ClientCredit()
        self._arrivals = 0
        self._count = 0
        self._counts: Counter[str] = Counter()  # by client
        self._served: OrderedDict[str, int] = OrderedDict()  # when each client was part of a pass, among arrivals

    def __getitem__(self, session: Session) -> SequenceState:
        return self._seats[session]

    def __len__(self) -> int:
        """Guesses that wait."""
        return self._count

    @property
    def seats(self) -> Iterable[SequenceState]:
        """All sessions that are known."""
        return self._seats.values()

    @property
    def waiting(self) -> list[SequenceState]:
        """Sessions with a guess, the one first that has been waiting for a pass the longest.

        Not by the arrival of their guesses: a session with many of them waiting would always be the first. Clients
        take turns, so that one with many sessions pushes nobody out.
        """
        return self.in_turns(self._waiting, lambda seat: seat.turn)

    @property
    def recent(self) -> Iterable[SequenceState]:
        """Sessions heard of within the last seconds, as of the last `drop_silent`."""
        return self._recent

    def in_turns(self, seats: Iterable[SequenceState], order: Callable[[SequenceState], int]) -> list[SequenceState]:
        """The first of each client by `order`, then the second of each, and so on.

        Of two clients the one first that was part of a pass the longest ago; one that was of none: that came first.
        """
        before: Counter[str] = Counter()
        came: dict[str, int] = {}
        places: list[tuple[int, SequenceState]] = []
        for seat in sorted(seats, key=order):
            client = seat.session.client
            came[client] = min(came.get(client, seat.turn), seat.turn)
            places.append((before[client], seat))
            before[client] += 1
        served = {client: self._served.get(client, turn) for client, turn in came.items()}
        places.sort(key=lambda each: (each[0], served[each[1].session.client]))
        return [seat for _, seat in places]

    def served(self, seat: SequenceState) -> None:
        """A pass feeds for this session."""
        self._arrivals += 1
        self._served[seat.session.client] = self._arrivals
        self._served.move_to_end(seat.session.client)
        if len(self._served) > CLIENTS:
            self._served.popitem(last=False)

    def in_the_way(self, session: Session) -> list[SequenceState]:
        """Those of whom one is to be answered before one more guess of `session` may wait; empty: it may now."""
        seat, client = self._seats.get(session), session.client
        if seat is not None and len(seat.jobs) >= PER_SESSION:
            return [seat]
        if client and self._counts[client] >= self._share:
            return [each for each in self.waiting if each.session.client == client]
        return self.waiting if self._count >= self._max_queue else []

    @property
    def _share(self) -> int:
        """How many guesses of one client may wait: three quarters of all. The rest is for others."""
        return self._max_queue - self._max_queue // 4

    def fullness(self, session: Session) -> str:
        """Why no more guesses of `session` may wait, in words."""
        seat = self._seats.get(session)
        if seat is not None and len(seat.jobs) >= PER_SESSION:
            return f"{len(seat.jobs)} guesses of session {session.id} wait already"
        if session.client and self._counts[session.client] >= self._share:
            return f"{self._counts[session.client]} guesses of yours wait, as many as one client may have waiting"
        return f"{self._count} guesses wait already"

    def has_room(self, session: Session) -> bool:
        """Whether one more guess of `session` may wait."""
        if not self.in_the_way(session):
            return True
        before = self._count
        for each in list(self._waiting):
            self._remove(each, [job for job in each.jobs if job.cancelled])
        return self._count < before and self.has_room(session)

    def add(self, job: Request, now: float) -> SequenceState:
        """Take in a guess: the seat of its session.

        Raises UnknownSession when its session was forgotten, and OverlapRefused for a guess that comes while another
        one waits, where what stands would depend on which of them is judged first.
        """
        if job.session.gone:
            raise UnknownSession(f"session {job.session.id} was deleted before its guess came")
        seat = self._seat(job.session)
        job.submitted = now
        if job.session.strategy not in DRAFTER_INVARIANT:
            self._check_overlap(seat, job)
        self._line_up(job, now)
        if not seat.jobs:
            seat.turn = job.number
        seat.hear(job, now)
        self._count += 1
        self._counts[seat.session.client] += 1
        self._waiting[seat] = None
        self._recent[seat] = None
        self._recent.move_to_end(seat)
        return seat

    def judged(self, seat: SequenceState, drafts: int, accepted: int, price: float) -> None:
        """A pass has judged so many drafts of a session, at that price each."""
        seat.allowance.judged(drafts, accepted, price)
        self._remembered.judged(seat.session.client, seat.allowance)

    def succeed(self, old: Session, new: Session) -> None:
        """Let `new` be known from here on, with the credit of `old`."""
        self._seat(new).allowance = self._seat(old).allowance

    def drop_silent(self, now: float) -> None:
        """Let sessions that nothing was heard of for a while count as recent no more."""
        while self._recent:
            seat = next(iter(self._recent))
            if now - seat.heard <= SILENCE:
                return
            del self._recent[seat]

    def settle(self, seat: SequenceState, now: float, ran: Request | None = None, judged: int = 0) -> None:
        """Answer, in order of arrival, what the record answers: `ran` too, if a pass has just judged `judged` drafts
        of it. Then its session queues anew."""
        if ran is not None:
            self._arrivals += 1
            seat.turn = self._arrivals
        for job in list(seat.jobs):
            if job.cancelled:
                self._remove(seat, [job])
                continue
            try:
                waits = job is not ran and job.place(self._max_drafts, first=job is seat.jobs[0])
            except SpecPairError as error:
                self.fail(seat, [job], error)
                continue
            if not waits:
                self._answer(seat, job, now, judged if job is ran else None)

    def fail(self, seat: SequenceState, jobs: list[Request], error: SpecPairError) -> None:
        """Answer `jobs` with an error."""
        seat.rhythm.over()
        for job in self._remove(seat, jobs):
            job.done(error)

    def forget(self, session: Session) -> None:
        """Let go of a session; what waits of it fails."""
        seat = self._seats.pop(session, None)
        if seat is not None:
            error = UnknownSession(f"session {session.id} was deleted while its guess was waiting")
            self.fail(seat, list(seat.jobs), error)
            self._recent.pop(seat, None)

    def check(self) -> Iterable[str]:
        """What does not add up, in words."""
        if self._count != sum(len(seat.jobs) for seat in self._seats.values()):
            yield f"{self._count} guesses are counted, {sum(len(seat.jobs) for seat in self._seats.values())} wait"
        for session, seat in self._seats.items():
            if session is not seat.session or session.gone:
                yield f"session {session.id} is gone and still known"
            if bool(seat.jobs) != (seat in self._waiting):
                yield f"session {session.id} has {len(seat.jobs)} guesses and waits: {seat in self._waiting}"
            if any(job.closed or job.session is not session for job in seat.jobs):
                yield f"session {session.id}: an answered guess waits, or another session's"
            if [job.number for job in seat.jobs] != sorted(job.number for job in seat.jobs):
                yield f"session {session.id}: its guesses are out of order"
            if session.own_from != sorted(set(session.own_from)):
                yield f"session {session.id}: its own steps overlap"
        for seat in [*self._waiting, *self._recent]:
            if self._seats.get(seat.session) is not seat:
                yield f"session {seat.session.id} is unknown, and waits or counts as recent"

    def _seat(self, session: Session) -> SequenceState:
        seat = self._seats.get(session)
        if seat is None:
            # Where the text depends on which drafts are judged, it must not depend on the client's other texts.
            known = session.client if session.strategy in DRAFTER_INVARIANT else ""
            seat = self._seats[session] = SequenceState(session, self._remembered.allowance(known))
        return seat

    def _check_overlap(self, seat: SequenceState, job: Request) -> None:
        """One guess at a time; but the same one may come again, and what the record answers waits for nothing."""
        others = [other for other in seat.jobs if not other.cancelled and not other.same_as(job)]
        # Whether it came before or behind the pass that has just ended is for chance to decide.
        overlaps = others or job.submitted < job.session.judged_at
        if overlaps and job.place(self._max_drafts, first=False):
            raise OverlapRefused(
                f"another guess of session {job.session.id} was under way: with the strategy {job.session.strategy} "
                "the text depends on the guesses, and would depend on timing, too: send one at a time"
            )

    def _line_up(self, job: Request, now: float) -> None:
        self._arrivals += 1
        job.number, job.since = self._arrivals, now

    def _answer(self, seat: SequenceState, job: Request, now: float, judged: int | None) -> None:
        answer = job.answer(now, judged)
        if job.until_end and answer.finish_reason is None:
            job.position, job.fresh = answer.total_tokens, []
            seat.jobs.remove(job)  # behind those who have waited longer, like a client that asks again at once
            seat.jobs.append(job)
            self._line_up(job, now)
        else:
            self._remove(seat, [job])
            if answer.finish_reason is None:
                _expect_next(seat, job, answer, now)
            else:
                seat.rhythm.over()
        job.done(answer)

    def _remove(self, seat: SequenceState, jobs: list[Request]) -> list[Request]:
        for job in jobs:
            seat.jobs.remove(job)
            job.closed = True
        self._count -= len(jobs)
        self._counts[seat.session.client] -= len(jobs)
        if not self._counts[seat.session.client]:
            del self._counts[seat.session.client]
        if not seat.jobs:
            self._waiting.pop(seat, None)
        return jobs


def _expect_next(seat: SequenceState, job: Request, answer: Answer, now: float) -> None:
    """What an answered guess says of the next one."""
    fell = answer.accepted < len(job.drafts)
    if fell and not (answer.judged or answer.unjudged):
        seat.rhythm.overtaken()
    elif fell or not job.drafts or job.next_in is None:
        seat.rhythm.answered(now, job.next_in)
    elif answer.judged:  # all of it stood: a client that can tell what comes next has sent on
        seat.rhythm.answered(now, 0.0)
    else:  # overtaken by what was committed meanwhile: when the next will be in time, nobody knows
        seat.rhythm.over()
