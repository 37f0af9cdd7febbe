"""What the engine does, for pages that listen and for the log."""

from collections.abc import Callable
from typing import NamedTuple

from specpair.http_service.observability.logs import DELETION, INTERRUPT, LogLine
from specpair.http_service.replies.events import EventFeed
from specpair.protocol.messages import GenerateRequest
from specpair.protocol.response_fields import STOP_STRING
from verifier_server.engine.port import EngineObserver
from verifier_server.sessions import Session


class EnginePass(NamedTuple):
    """One pass of the engine. Times are seconds."""

    ended: float  # on the engine's clock
    took: float
    waited: float  # the longest that a request had waited for this pass, if it is its first one
    sessions: int
    tokens: int
    prefilled: int  # of the tokens, those that were fed without being judged
    judged: int  # draft tokens
    accepted: int  # draft tokens
    committed: int


class EngineFeed(EventFeed[EnginePass | Session], EngineObserver):
    """Hands passes, and sessions whose texts have ended, to its readers. The engine's thread tells of them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: the engine's."""
        super().__init__()
        self._clock = clock
        self._waited, self._judged, self._accepted, self._committed = 0.0, 0, 0, 0  # of the pass that is concluded

    def waited(self, seconds: float) -> None:
        if self.heard:
            self._waited = max(self._waited, seconds)

    def committed(self, session: Session, tokens: int, judged: int, accepted: int, since: float, first: bool) -> None:
        if self.heard:
            self._committed += tokens
            self._judged += judged
            self._accepted += accepted

    def passed(self, sessions: int, tokens: int, prefilled: int, seconds: float) -> None:
        if self.heard:
            counts = self._judged, self._accepted, self._committed
            self.put(EnginePass(self._clock(), seconds, self._waited, sessions, tokens, prefilled, *counts))
            self._waited, self._judged, self._accepted, self._committed = 0.0, 0, 0, 0

    def ended(self, session: Session, seconds: float) -> None:
        if self.heard:
            self.put(session)


def log_text(session: Session) -> None:
    """Log the text of a session that has ended, or that nobody continues. Nothing is logged for one without a token."""
    generated = len(session.tokens) - session.decided_from
    if generated:
        LogLine(
            *(session.prompt_len, generated, session.seconds, session.drafted, session.accepted),
            mode_of(session),
            _ended_by(session),
        ).log(session.id)


def mode_of(session: Session) -> str:
    """Who drafts for a session: remote, fused or target."""
    request = session.lease.request
    return request.mode if isinstance(request, GenerateRequest) else "remote"


def _ended_by(session: Session) -> str:
    if session.stopped:
        return STOP_STRING
    return session.finish_reason or (DELETION if session.lease.deleted else INTERRUPT)
