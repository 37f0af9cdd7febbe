"""Logs the texts of sessions."""

from specpair.http_service.observability.text_lines import DELETION, INTERRUPT, LogLine
from specpair.protocol.messages import GenerateRequest
from specpair.protocol.response_fields import STOP_STRING
from verifier_server.sessions import Session


def log_text(session: Session) -> None:
    """Log the text of a session that has ended, or that nobody continues. Nothing is logged for one without a token."""
    generated = len(session.tokens) - session.decided_from
    if generated:
        request = session.lease.request
        LogLine(
            session.prompt_len,
            generated,
            session.seconds,
            session.drafted,
            session.accepted,
            request.mode if isinstance(request, GenerateRequest) else "remote",
            _ended_by(session),
        ).log(session.id)


def _ended_by(session: Session) -> str:
    if session.stopped:
        return STOP_STRING
    return session.finish_reason or (DELETION if session.lease.deleted else INTERRUPT)
