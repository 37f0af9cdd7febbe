"""`GET /events`: what the verifier does, as server-sent events."""

from collections.abc import AsyncIterator, Callable, Iterator

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from specpair.http_service.keys.access import Caller
from specpair.http_service.replies.events import COMMENT, EventStream, FeedReader, event_bytes, message_event
from specpair.protocol.errors import SpecPairError
from verifier_server.observability.engine_events import EnginePass
from verifier_server.observability.live_view import LiveView, told_passes
from verifier_server.service import Service
from verifier_server.sessions import Session

EVERY = 0.25  # seconds between events, at least: the passes in between are told together
LOOK = 1.0  # seconds of silence after which the verifier is looked at


class LiveEvents:
    """The endpoint as a method."""

    def __init__(self, service: Service) -> None:
        self._service, self._view = service, LiveView(service)

    async def watch_verifier(self, request: Request) -> Response:
        """What the verifier does, as it happens: its state, sessions, passes and the keys' usage. No text and no token
        is told.

        A key sees its own sessions and usage, an admin's key those of all keys. Without keys, ids of sessions are not
        told, since an id gives access. The stream ends with the service, and when the key is no longer taken.
        """
        gate = self._service.gate
        gate.admit(request)
        reader = FeedReader[EnginePass | Session]()
        events = _events(reader, self._view, lambda: gate.admit(request))
        return EventStream(events, held=self._service.feed.heard_by(reader))


async def _events(
    reader: FeedReader[EnginePass | Session], view: LiveView, admit: Callable[[], Caller]
) -> AsyncIterator[bytes]:
    """The events for a caller, until `admit` raises an error."""
    before: dict[str, BaseModel] = {}
    came = list[EnginePass | Session]()
    while not reader.closed:
        try:
            caller = admit()
        except SpecPairError:
            return
        yield b"".join(_changed(before, view, caller)) + b"".join(_told(came, view, caller)) or COMMENT
        await reader.rest(EVERY)
        came = await reader.next(LOOK)


def _changed(before: dict[str, BaseModel], view: LiveView, caller: Caller) -> Iterator[bytes]:
    """Events of what is not as in `before`, by name, which is changed."""
    now = {"state": view.state(), "sessions": view.sessions(caller), "usage": view.usage(caller)}
    for name, found in now.items():
        if before.get(name) != found:
            before[name] = found
            yield message_event(found, name)


def _told(came: list[EnginePass | Session], view: LiveView, caller: Caller) -> Iterator[bytes]:
    """Events of what came from the engine."""
    if passes := [each for each in came if isinstance(each, EnginePass)]:
        yield event_bytes(told_passes(passes), "passes")
    ended = view.told([each for each in came if isinstance(each, Session)], caller)
    if ended.sessions:
        yield message_event(ended, "ended")
