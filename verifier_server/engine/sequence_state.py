"""A session's state in the scheduler: its waiting requests, and the estimate of when the next one arrives."""

from collections import deque
from collections.abc import Hashable, Iterable

from verifier_server.engine.arrived_drafts import Request
from verifier_server.engine.draft_credit import DraftCredit
from verifier_server.engine.interface import EngineObserver
from verifier_server.sessions import Session

LONGEST = 0.1  # the longest batching window, as a multiple of the estimated time of the pass
SILENCE = 2.0  # seconds without a request after which a session's client counts as gone
_REMEMBERED = 8  # how many of the latest gaps are kept


class _Gaps:
    """The latest gaps, in seconds. One outlier at either end is ignored."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=_REMEMBERED)
        self._sorted: list[float] = []

    def __bool__(self) -> bool:
        return bool(self._sorted)

    def append(self, gap: float) -> None:
        self._latest.append(gap)
        self._sorted = sorted(self._latest)

    def pop(self) -> None:
        """Forget the latest gap."""
        self._latest.pop()
        self._sorted = sorted(self._latest)

    @property
    def ends(self) -> tuple[float, float]:
        """The second shortest and second longest gap; of fewer than five, the shortest and the longest."""
        inner = (len(self._sorted) - 1) // 4
        return self._sorted[inner], self._sorted[-1 - inner]


class ArrivalEstimator:
    """Estimates when the next verify request of one session arrives. All times are in seconds.

    A gap is the time from an answer to the next request. The second shortest of the latest gaps gives the earliest
    arrival and the second longest the latest one, so that a single outlier (a network delay, a pause of the user)
    changes nothing.

    A client may state the gap after an answer. One of `SILENCE` and more says only that nothing should wait for the
    request: it is no measure of when that comes, and what was measured behind such answers tells it better. So these
    gaps are kept as they are, and apart from those that are counted from a stated moment on.
    """

    def __init__(self) -> None:
        self._answered: float | None = None  # time of the last answer; None while a request is waiting
        self._stated: float | None = None  # the gap after the last answer, as the client stated it, if it comes soon
        self._soon = True  # whether the client did not say that nothing should wait for the request
        self._before: float | None = None  # what `_answered` was until the waiting request arrived
        self._whole, self._beyond = _Gaps(), _Gaps()  # measured gaps; measured ones minus the stated ones

    def answered(self, now: float, next_in: float | None) -> None:
        """Note an answer. `next_in`: seconds until the next request, as the client stated; None: it did not."""
        self._soon = next_in is None or next_in < SILENCE
        self._answered, self._stated, self._before = now, next_in if self._soon else None, None

    def arrived(self, now: float) -> None:
        """Note that a request has arrived."""
        if self._answered is not None:
            self._gaps.append(max(0.0, now - self._answered) - (self._stated or 0.0))
        self._before, self._answered = self._answered, None

    def overtaken(self) -> None:
        """Undo `arrived`: the client sent that request before it knew the last answer, so the next one is still due."""
        if self._before is not None:
            self._gaps.pop()
            self._answered, self._before = self._before, None

    def over(self) -> None:
        """Expect no further request: the text has ended, or the answer was an error."""
        self._answered = self._before = None

    @property
    def soonest(self) -> float | None:
        """The earliest time at which the next request is due; None: unknown, nothing should wait for it, or a request
        is waiting."""
        if self._answered is None or not self._soon:
            return None
        if self._stated is not None:
            return self._answered + self._stated
        return self._answered + self._gaps.ends[0] if self._gaps else None

    @property
    def latest(self) -> float | None:
        """The time by which the next request should have arrived; None: unknown, or a request is waiting."""
        if self._answered is None:
            return None
        if not self._gaps:
            return None if self._stated is None else self._answered + self._stated
        low, high = self._gaps.ends
        return self._answered + (self._stated or 0.0) + high + (high - low) / 2

    @property
    def _gaps(self) -> _Gaps:
        """The gaps after answers like the last one."""
        return self._whole if self._stated is None else self._beyond


def window_until(now: float, last: float, pass_time: float, ready: int, expected: Iterable[float]) -> float | None:
    """The time, at most `last`, until which waiting saves most; None: start the pass now. Times in seconds.

    `pass_time`: the estimated time of the pass.
    `ready`: how many sessions wait for it.
    `expected`: the times by which other sessions should have sent a request; past ones are ignored. Waiting for the
        first j of these saves each of the j sessions the rest of a pass that it would otherwise wait for, and costs
        each ready session the wait.
    """
    best, until = 0.0, None
    for count, moment in enumerate(sorted(moment for moment in expected if now < moment <= last), 1):
        wait = moment - now
        gain = count * (pass_time - wait) - ready * wait
        if gain > best:
            best, until = gain, moment
    return until


LEAD = 64  # tokens by which self-continuation may be ahead of the highest position that the client has sent


class SequenceState:
    """The scheduler's state of one session. Only the engine's thread uses it; the event loop reads a `Session`, too."""

    def __init__(self, session: Session, draft_credit: DraftCredit) -> None:
        self.session = session
        self.requests: list[Request] = []  # waiting, in order of arrival
        self.turn = 0  # its place in the order of waiting sessions
        self.arrivals = ArrivalEstimator()
        self.draft_credit = draft_credit
        self.heard = 0.0  # when the last request arrived, in seconds
        self.waits = False  # whether the latest request asked not to self-continue
        self.acknowledged = session.prompt_len  # the highest position the client has sent
        self.judged_at = 0.0  # when the last pass for a request ended, in seconds
        self.served = 0  # number of the last pass it was part of
        self.queued: float | None = None  # when its first request arrived, in seconds
        self.committed_at: float | None = None  # when tokens were last committed, in seconds

    @property
    def client(self) -> Hashable:
        """The client whose share of the queue the session uses; None if it has none."""
        return self.session.client

    @property
    def due_by(self) -> float:
        """The time by which the next request should arrive; if unknown, the time of the session's last activity."""
        latest = self.arrivals.latest
        return max(self.heard, self.committed_at or 0.0) if latest is None else latest

    def add(self, request: Request, now: float) -> None:
        """Add a request that arrives at `now`."""
        self.arrivals.arrived(now)
        self.heard = now
        if self.queued is None:
            self.queued = now
        if (may := request.policy.self_continue) is not None and request.position >= self.acknowledged:
            self.waits = not may
        self.acknowledged = max(self.acknowledged, min(request.position, len(self.session.tokens)))
        self.requests.append(request)

    def tell(
        self, observer: EngineObserver, tokens: int, judged: int, accepted: int, target_decoded: bool, now: float
    ) -> None:
        """Report to `observer` the tokens that a pass, ended at `now`, has committed to the session."""
        session, before, self.committed_at = self.session, self.committed_at, now
        queued = now if self.queued is None else self.queued
        session.drafted += judged
        session.accepted += accepted
        session.seconds = now - queued
        since = queued if before is None else before
        drafts = (0, 0) if target_decoded else (judged, accepted)  # those of clients, not of the target's own head
        observer.committed(session, tokens, *drafts, now - since, before is None)
        if target_decoded:
            observer.target_decoded(tokens)
        if session.finish_reason is not None:
            observer.ended(session, now - queued)

    @property
    def width(self) -> int:
        """How many tokens a pass judges to answer the first request, or for a self-continuation step."""
        return 1 + (len(self.requests[0].fresh) if self.requests else 0)

    def choose(self, max_drafts: int) -> tuple[Request, list[Request]]:
        """The request to run next, and all requests that its pass answers.

        The first request is run, unless later ones hold a longer draft that begins with the same tokens: then the
        longest of these.
        """
        run = first = self.requests[0]
        for request in self.requests[1:]:
            if len(run.fresh) < len(request.fresh) <= max_drafts and request.fresh.contains(first.fresh):
                run = request
        return run, [request for request in self.requests if run.fresh.contains(request.fresh)]

    def may_continue(self, unread: int) -> bool:
        """Whether the session may self-continue, if no request waits and its client was active lately.

        Its slot must hold all that comes before the pending tokens, so that none is `unread`: a session without a slot
        (also after a failed pass) would take one from another session and prefill its text again, though no client has
        asked for it.
        """
        session = self.session
        return (
            session.self_continue
            and not self.waits
            and session.finish_reason is None
            and unread == 0
            and session.prompt_len < len(session.tokens) < self.acknowledged + LEAD
        )

    def blocked_until(self, now: float, half_pass: float) -> float | None:
        """Until when a self-continuation step must wait for an expected request; None: the step may start.

        `half_pass`: half the time of a pass over one token. All times are in seconds.
        """
        soonest = self.arrivals.soonest
        if soonest is None or soonest - now >= half_pass:
            return None
        expired = soonest + half_pass  # a request that has not arrived by then is no longer expected
        return expired if now < expired else None
