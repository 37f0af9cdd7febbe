"""Counts the tokens of sessions for the keys that opened them, as the engine's answers come."""

from specpair.http_service.keys.accounts import Accounts
from verifier_server.engine.requests import Answer
from verifier_server.sessions import Session


class Accounting:
    """Counts for the keys what the engine did in their sessions. Used in the event loop.

    Each committed token counts once, with the first answer that comes after it: also one of self-continuation, and
    also if several answers hold it.
    """

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def answered(self, session: Session, answer: Answer) -> None:
        """Count what has happened in `session` up to an answer. Each answer is to be told once."""
        ran = answer.round
        self._count(session, answer.total_tokens, answer.judged, 0 if ran is None else ran.accepted)

    def over(self, session: Session) -> None:
        """Count the tokens that came after the last answer: the session is removed."""
        self._count(session, len(session.tokens), 0, 0)

    def _count(self, session: Session, total: int, drafted: int, accepted: int) -> None:
        lease = session.lease
        new = max(0, total - lease.counted)
        first = new > 0 and lease.counted == session.decided_from
        lease.counted += new
        if new or drafted:
            self._accounts.of(lease.key).count(
                self._accounts.clock(),
                prompt=session.prompt_len if first else 0,
                generated=new,
                drafted=drafted,
                accepted=accepted,
            )
