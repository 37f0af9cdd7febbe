"""What can be seen of a verifier at a moment, by those who may see it."""

import time

from pydantic_core import to_json

from specpair.http_service.keys.access import Caller
from specpair.protocol.service_responses import UsageResponse
from specpair.protocol.times import milliseconds
from verifier_server.engine.port import TokenEngine
from verifier_server.live.messages import EngineLoad, ToldSession, ToldSessions, VerifierState
from verifier_server.observability.engine_feed import EnginePass
from verifier_server.observability.text_log import mode_of
from verifier_server.service import Service
from verifier_server.sessions import Session

MOST_SESSIONS = 100  # that are told one by one


class LiveView:
    """A verifier as its page shows it. Used in the event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._began_at = round(time.time(), 3)

    def state(self) -> VerifierState:
        """Its state, which every caller may see."""
        service = self._service
        health, models = service.health(), service.loader.models
        load = None if models is None else models.engine.state
        return VerifierState(
            status=service.condition().status,
            reason=health.reason,
            progress=health.progress,
            began_at=self._began_at,
            identity=health.identity,
            sessions=len(service.sessions),
            sessions_in_use=service.sessions.in_use_now,
            most_sessions=service.settings.max_sessions,
            most_waiting=service.settings.max_queue,
            generated_tokens=service.gate.accounts.generated_tokens,
            engine=None if load is None else EngineLoad.model_validate(load, from_attributes=True),
        )

    def usage(self, caller: Caller) -> UsageResponse:
        """The usage that the caller may see."""
        return self._service.gate.usage(caller)

    def sessions(self, caller: Caller) -> ToldSessions:
        """The sessions that the caller may see, those whose texts have not ended first, the newest first."""
        held = self._service.sessions.all()
        held.sort(key=lambda each: (each.finish_reason is not None, -each.lease.number))
        return self.told(held, caller)

    def told(self, sessions: list[Session], caller: Caller) -> ToldSessions:
        """Those of `sessions` that the caller may see."""
        models = self._service.loader.models
        if models is None:
            return ToldSessions(sessions=[], more=0)
        everyones = caller.key is not None and caller.key.admin
        seen = [each for each in sessions if everyones or each.lease.owner == caller.owner]
        return ToldSessions(
            sessions=[_told(models.engine, each, caller) for each in seen[:MOST_SESSIONS]],
            more=max(0, len(seen) - MOST_SESSIONS),
        )


def told_passes(passes: list[EnginePass]) -> bytes:
    """A `ToldPasses` as JSON. It is written from dicts, since there may be a thousand passes in a second."""
    return to_json({"passes": [_told_pass(*each) for each in passes]})


def _told_pass(ended: float, took: float, waited: float, *counts: int) -> dict[str, float]:
    sessions, tokens, prefilled, judged, accepted, committed = counts
    return {
        "ended_ms": milliseconds(ended),
        "took_ms": milliseconds(took),
        "queue_ms": milliseconds(waited),
        "sessions": sessions,
        "tokens": tokens,
        "prefilled": prefilled,
        "judged": judged,
        "accepted": accepted,
        "committed": committed,
    }


def _told(engine: TokenEngine, session: Session, caller: Caller) -> ToldSession:
    lease, unread = session.lease, engine.prompt_progress(session)
    return ToldSession(
        number=lease.number,
        session_id=session.id if caller.owner and lease.owner == caller.owner else None,  # an id gives access
        key=lease.key or None,
        mode=mode_of(session),
        prompt_tokens=session.prompt_len,
        prompt_read=session.prompt_len if unread is None else unread.read,
        generated=len(session.tokens) - session.prompt_len,
        most_tokens=session.limit - session.prompt_len,
        drafted=session.drafted,
        accepted=session.accepted,
        in_use=lease.requests > 0,
        resident=engine.is_resident(session),
        finish_reason=session.finish_reason,
        took_ms=milliseconds(session.seconds),
    )
