"""A session as the scheduler sees it: which guesses of it wait, when it was heard of, what a pass would feed for it."""

from verifier_server.engine.arrivals import ArrivalEstimator
from verifier_server.engine.draft_credit import DraftCredit
from verifier_server.engine.requests import Request
from verifier_server.sessions import Session

LEAD = 64  # tokens that a session may be ahead, by itself, of what its client knows
SILENCE = 2.0  # seconds after which a session that nothing is heard of counts as left


class SequenceState:
    """What is known of one session besides its text."""

    def __init__(self, session: Session, draft_credit: DraftCredit) -> None:
        self.session = session
        self.requests: list[Request] = []  # waiting, in order of arrival
        self.turn = 0  # its place in the order of those that wait
        self.arrivals = ArrivalEstimator()
        self.draft_credit = draft_credit
        self.heard = 0.0  # arrival of the last request
        self.waits = False  # for guesses, as its client asked for in the latest: no steps of its own
        self.acknowledged = session.prompt_len  # the highest position its client has sent
        self.answers = 0  # that the model ran for since it has its row
        self.served = 0  # the last pass that it was part of

    def hear(self, request: Request, now: float) -> None:
        """A guess has come."""
        self.arrivals.arrived(now)
        self.heard = now
        if request.goes_on is not None and request.position >= self.acknowledged:
            self.waits = not request.goes_on
        self.acknowledged = max(self.acknowledged, min(request.position, len(self.session.tokens)))
        self.requests.append(request)

    @property
    def lacking(self) -> int:
        """Committed tokens that the row does not hold: one, the pending token, unless there is something to read."""
        return len(self.session.tokens) - self.session.held

    @property
    def width(self) -> int:
        """Tokens that a pass feeds to answer the first guess, or for a step of the session's own."""
        return self.lacking + (len(self.requests[0].fresh) if self.requests else 0)

    def choose(self, max_drafts: int) -> tuple[Request, list[Request]]:
        """The guess to run next, and all that are answered with it.

        That is the first one, unless a later one begins with the same drafts and goes on: then the longest such.
        """
        run = first = self.requests[0]
        for request in self.requests[1:]:
            if len(run.fresh) < len(request.fresh) <= max_drafts and request.fresh[: len(first.fresh)] == first.fresh:
                run = request
        return run, [request for request in self.requests if run.fresh[: len(request.fresh)] == request.fresh]

    @property
    def goes_on(self) -> bool:
        """Whether it may take steps of its own, if no guess waits and it was heard of lately.

        Its row must lack nothing but the pending token: a session without one (after a failed pass, too) would take
        it from others and read its text again, unasked.
        """
        session = self.session
        return (
            session.self_continue
            and not self.waits
            and session.finish_reason is None
            and self.lacking == 1
            and session.prompt_len < len(session.tokens) < self.acknowledged + LEAD
        )

    def blocked_until(self, now: float, half_step: float) -> float | None:
        """When a step of its own may start a pass, for a guess is expected sooner; None: now."""
        soonest = self.arrivals.soonest
        if soonest is None or soonest - now >= half_step:
            return None
        void = soonest + half_step  # it has not come when it was expected, so nothing is known any more
        return void if now < void else None
