"""Server-sent events: how they are written, and the stream of a session's tokens as they are committed."""

import asyncio
import json
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from speculation.errors import SpecPairError, UnknownSession
from verifier_server.service import Service
from verifier_server.sessions import Session

HEARTBEAT = 3.0  # seconds of silence after which a comment says that the connection stands; clients give it up after 10
COMMENT = b":\n\n"
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # a proxy that collects would hold tokens back
MEDIA_TYPE = "text/event-stream"
encode = json.JSONEncoder(separators=(",", ":")).encode


def event(name: str, body: dict[str, Any]) -> bytes:
    """One event on the wire."""
    return f"event: {name}\ndata: {encode(body)}\n\n".encode()


class CommittedStream(Response):
    """Pushes what is committed from a position on, until the session ends or its reader leaves.

    Written on ASGI itself: a token is on its socket one turn of the loop after the engine told of it. A slow reader
    holds up nothing and piles up nothing: what was committed meanwhile goes out as one event.
    """

    media_type = MEDIA_TYPE

    def __init__(self, service: Service, session: Session, position: int) -> None:
        self.status_code, self.background = 200, None
        self.init_headers(HEADERS)
        self._service, self._session, self._sent = service, session, position
        self._left = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        news = asyncio.Event()

        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self._left = True
            news.set()

        listener = loop.create_task(listen())
        try:
            with self._service.sessions.in_use(self._session), self._watching(news):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                more = True
                while more and not self._left:
                    news.clear()
                    chunk, more = self._next()
                    if chunk or not more:
                        await send({"type": "http.response.body", "body": chunk, "more_body": more})
                    elif not await _set_within(news, HEARTBEAT):
                        await send({"type": "http.response.body", "body": COMMENT, "more_body": True})
        finally:
            listener.cancel()

    @contextmanager
    def _watching(self, news: asyncio.Event) -> Iterator[None]:
        """Have `news` set after commits; one wake-up is under way at most, however many passes the loop sleeps over."""
        outbox, under_way = self._service.outbox, False

        def wake() -> None:
            nonlocal under_way
            under_way = False
            news.set()

        def watcher() -> None:
            nonlocal under_way
            if not under_way:
                under_way = True
                outbox.put(wake)

        session = self._session
        session.watchers = (*session.watchers, watcher)
        try:
            yield
        finally:
            session.watchers = tuple(other for other in session.watchers if other is not watcher)

    def _next(self) -> tuple[bytes, bool]:
        """The events that are due now, and whether more may follow."""
        session = self._session
        # Read before the tokens, which the engine's thread appends first: an end that is seen has all its tokens here.
        finish_reason, gone, ended = session.finish_reason, session.gone, self._service.engine.ended
        events = b"".join(self._tokens())
        if finish_reason is not None:
            return events + event("end", {"total_tokens": self._sent, "finish_reason": finish_reason}), False
        error: SpecPairError | None = None
        if gone:
            error = UnknownSession(f"session {session.id} was deleted, or expired, while it was streamed")
        else:
            error = ended
        return (events, True) if error is None else (events + event("error", error.body()), False)

    def _tokens(self) -> Iterator[bytes]:
        """What was committed since the last time, parted where the verifier's own steps begin or end."""
        session, total = self._session, len(self._session.tokens)
        while self._sent < total:
            passed = bisect_right(session.own_from, self._sent)
            end = min(total, session.own_from[passed]) if passed < len(session.own_from) else total
            tokens = session.tokens[self._sent : end]
            own = passed % 2 == 1
            body = {"position": self._sent, "tokens": tokens, "own": own}
            if own:
                body["forward_ms"] = round(session.own_ms, 3)
            if session.decisions is not None:
                body["decisions"] = session.decided(self._sent, end)
            yield event("tokens", body)
            self._sent = end


async def _set_within(news: asyncio.Event, seconds: float) -> bool:
    """Whether `news` is set, or becomes so in time."""
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        return False
    return True
