"""Logs the texts of sessions."""

from specpair.http_service.observability.logs import DELETION, INTERRUPT, LogLine
from specpair.protocol.messages import GenerateRequest
from specpair.protocol.response_fields import STOP_STRING
from verifier_server.sessions import Session


def log_text(session: Session) -> None:
    """Log the text of a session that has ended, or that nobody continues. Nothing is logged for one without a token."""
    generated = len(session.tokens) - session.decided_from
    if generated:
        LogLine(
            session.prompt_len,
            generated,
            session.seconds,
            session.drafted,
            session.accepted,
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
