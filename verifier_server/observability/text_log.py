"""Logs the texts of sessions."""

from specpair.http_service.observability.text_lines import INTERRUPT, LogLine
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
            STOP_STRING if session.stopped else session.finish_reason or INTERRUPT,
        ).log(session.id)
