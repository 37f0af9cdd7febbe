"""A session as the scheduler sees it: its waiting requests, when the next is due, what a pass would feed for it."""

from collections.abc import Hashable

from verifier_server.engine.arrivals import ArrivalEstimator
from verifier_server.engine.draft_credit import DraftCredit
from verifier_server.engine.port import EngineObserver
from verifier_server.engine.requests import Request
from verifier_server.sessions import Session

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
        """The client for whose share of the queue the session counts; None if it has none."""
        return self.session.client

    @property
    def due_by(self) -> float:
        """When the next request should have arrived, in seconds; if that is unknown, when something last came of it."""
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
        """Count what a pass that ended at `now` has committed to the session, and tell `observer`."""
        session, first = self.session, self.committed_at is None
        queued = now if self.queued is None else self.queued
        since = queued if self.committed_at is None else self.committed_at
        self.committed_at = now
        session.drafted += judged
        session.accepted += accepted
        session.seconds = now - queued
        observer.committed(session, tokens, judged, accepted, now - since, first)
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
        """Whether the session may self-continue, provided no request waits and its client was heard of lately.

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
        """Until when no pass may start for a self-continuation step, because a request is expected; None: one may.

        `half_pass`: half the time of a pass over one token. All times are in seconds.
        """
        soonest = self.arrivals.soonest
        if soonest is None or soonest - now >= half_pass:
            return None
        expired = soonest + half_pass  # a request that has not arrived by then is no longer expected
        return expired if now < expired else None
