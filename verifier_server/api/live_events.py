"""`GET /events`: server-sent events about the verifier, for callers with the right to them."""

import time
from collections.abc import AsyncIterator, Callable
from typing import Annotated

from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from specpair.http_service.keys.access import Caller
from specpair.http_service.replies.events import (
    COMMENT,
    EventMessage,
    EventStream,
    FeedReader,
    event_bytes,
    message_event,
)
from specpair.numbers import milliseconds
from specpair.protocol.errors import SpecPairError
from specpair.protocol.service_responses import ServiceStatus
from verifier_server.engine.interface import TokenEngine
from verifier_server.observability import Number, PassMessage, mode_of
from verifier_server.service import Service
from verifier_server.sessions import Session

MOST_SESSIONS = 100  # that are told one by one


class EngineLoad(EventMessage):
    """The engine's load."""

    waiting: Annotated[Number, Field(description="Requests that wait for a pass.")]
    running: Annotated[Number, Field(description="Requests that the pass under way may answer.")]
    slots: Annotated[Number, Field(description="Slots: sessions whose KV cache can be held at once.")]
    slots_in_use: Annotated[Number, Field(description="Slots of texts that have not ended.")]
    cached_tokens: Annotated[Number, Field(description="Tokens in all slots.")]
    kept_tokens: Annotated[Number, Field(description="Of these, tokens of ended texts.")]
    context_length: Annotated[Number, Field(description="Tokens that one slot can hold.")]
    evictions: Annotated[Number, Field(description="Texts under way that lost their slot to another one.")]


class VerifierState(EventMessage):
    """Whether the verifier takes texts, and its load. Sent first, and after each change."""

    status: Annotated[ServiceStatus, Field(description="As `/ready` says it.")]
    reason: Annotated[str | None, Field(description="Reason of a failure or of a wait.")]
    progress: Annotated[float | None, Field(description="Share of the model that is loaded, while it loads.")]
    began_at: Annotated[float, Field(description="When the process began to serve, in seconds of Unix time.")]
    identity: Annotated[str | None, Field(description="As in `/model`, when ready.")]
    sessions: Annotated[Number, Field(description="Sessions held.")]
    sessions_in_use: Annotated[Number, Field(description="Of these, those with an open request.")]
    most_sessions: Annotated[Number, Field(description="Sessions that may be held at once.")]
    most_waiting: Annotated[Number, Field(description="Requests that may wait at once.")]
    generated_tokens: Annotated[Number, Field(description="Tokens generated since the start.")]
    engine: Annotated[EngineLoad | None, Field(description="Null: no model is loaded.")]


class SessionMessage(EventMessage):
    """A session."""

    number: Annotated[int, Field(description="Session number, counted from 1 since the start.")]
    session_id: Annotated[str | None, Field(description="Only of the sessions of the caller's key.")]
    key: Annotated[str | None, Field(description="The name of the key that opened it; null: none did.")]
    mode: Annotated[str, Field(description="Who drafts: remote (the client), fused (the server) or target (nobody).")]
    prompt_tokens: Annotated[Number, Field(description="Tokens of its prompt.")]
    prompt_read: Annotated[Number, Field(description="Of these, tokens in its slot.")]
    generated: Annotated[Number, Field(description="Tokens committed after the prompt.")]
    most_tokens: Annotated[Number, Field(description="Token limit of the text.")]
    drafted: Annotated[Number, Field(description="Draft tokens that the target judged.")]
    accepted: Annotated[Number, Field(description="Of these, those accepted.")]
    in_use: Annotated[bool, Field(description="Whether a request on it is open.")]
    resident: Annotated[bool, Field(description="Whether it has a KV slot.")]
    finish_reason: Annotated[str | None, Field(description="Null: its text has not ended.")]
    took_ms: Annotated[float, Field(description="Time from its first request's queueing to its last pass.")]


class SessionsMessage(EventMessage):
    """The sessions that the caller may see: those of its key, or of all keys if its key is an admin's."""

    sessions: Annotated[
        list[SessionMessage],
        Field(description="In `sessions`, those whose texts have not ended first, the newest first."),
    ]
    more: Annotated[Number, Field(description="Number of further sessions.")]


class PassesMessage(EventMessage):
    """The passes since the last such event. A reader more than 512 passes behind misses the oldest."""

    passes: Annotated[list[PassMessage], Field(description="In the order in which they ended.")]


EVERY = 0.25  # seconds between events, at least: the passes in between are told together
LOOK = 1.0  # seconds of silence after which the verifier is looked at


class LiveEvents:
    """The endpoint as a method. Used in the event loop."""

    def __init__(self, service: Service) -> None:
        self._service, self._began_at = service, round(time.time(), 3)

    async def watch_verifier(self, request: Request) -> Response:
        """Live events: the verifier's state, sessions, passes and the keys' usage, without texts and tokens.

        A key sees its own sessions and usage, an admin's key those of all keys. Without keys, ids of sessions are not
        told, since an id gives access. The stream ends with the service, and when the key is no longer taken.
        """
        gate = self._service.gate
        gate.admit(request)
        reader = FeedReader[PassMessage | Session]()
        return EventStream(self._events(reader, lambda: gate.admit(request)), held=self._service.feed.heard_by(reader))

    async def _events(
        self, reader: FeedReader[PassMessage | Session], admit: Callable[[], Caller]
    ) -> AsyncIterator[bytes]:
        """The events for a caller, until `admit` raises an error."""
        before: dict[str, BaseModel] = {}
        came = list[PassMessage | Session]()
        while not reader.closed:
            try:
                caller = admit()
            except SpecPairError:
                return
            now = {"state": self._state(), "sessions": self._held(caller), "usage": self._service.gate.usage(caller)}
            events = b"".join(message_event(found, name) for name, found in now.items() if before.get(name) != found)
            before = now
            # Passes are written without models of them, since there may be a thousand in a second.
            if passes := [each for each in came if isinstance(each, PassMessage)]:
                events += event_bytes(to_json({"passes": passes}), "passes")
            ended = self._visible([each for each in came if isinstance(each, Session)], caller)
            if ended.sessions:
                events += message_event(ended, "ended")
            yield events or COMMENT
            await reader.rest(EVERY)
            came = await reader.next(LOOK)

    def _state(self) -> VerifierState:
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
            sessions_in_use=service.sessions.admission.in_use,
            most_sessions=service.settings.max_sessions,
            most_waiting=service.settings.max_queue,
            generated_tokens=service.gate.accounts.generated_tokens,
            engine=None if load is None else EngineLoad.model_validate(load, from_attributes=True),
        )

    def _held(self, caller: Caller) -> SessionsMessage:
        held = self._service.sessions.all()
        held.sort(key=lambda each: (each.finish_reason is not None, -each.lease.number))
        return self._visible(held, caller)

    def _visible(self, sessions: list[Session], caller: Caller) -> SessionsMessage:
        """The `sessions` that the caller may see."""
        models = self._service.loader.models
        if models is None:
            return SessionsMessage(sessions=[], more=0)
        everyones = caller.key is not None and caller.key.admin
        seen = [each for each in sessions if everyones or each.lease.owner == caller.owner]
        return SessionsMessage(
            sessions=[_session(models.engine, each, caller) for each in seen[:MOST_SESSIONS]],
            more=max(0, len(seen) - MOST_SESSIONS),
        )


def _session(engine: TokenEngine, session: Session, caller: Caller) -> SessionMessage:
    lease, unread = session.lease, engine.prompt_progress(session)
    return SessionMessage(
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
