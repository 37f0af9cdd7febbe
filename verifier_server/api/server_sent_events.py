"""Server-sent events: their encoding, and the stream of a session's committed tokens."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette import responses
from starlette.types import Receive, Scope, Send

from specpair.http_service.replies.event_stream import HEADERS, HEARTBEAT, MEDIA_TYPE, comment
from specpair.protocol.errors import SpecPairError, UnknownSession
from specpair.protocol.response_fields import Response
from specpair.protocol.responses import ErrorResponse, StreamedTokens, StreamEnd
from specpair.protocol.times import milliseconds
from verifier_server.service import Service
from verifier_server.sessions import Session


def event(name: str, data: Response) -> bytes:
    """The bytes of an event."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data.body())


class CommittedStream(responses.Response):
    """Streams committed tokens from `position` on, until the session ends or the reader disconnects.

    Uses ASGI directly, so that a token reaches the socket one turn of the event loop after its commit. A slow reader
    neither blocks the engine nor fills a queue: all tokens committed since the last event are sent as one event.
    """

    media_type = MEDIA_TYPE

    def __init__(self, service: Service, session: Session, position: int) -> None:
        self.status_code, self.background = 200, None
        self.init_headers(HEADERS)
        self._service, self._session, self._sent = service, session, position
        self._disconnected = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        news = asyncio.Event()

        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self._disconnected = True
            news.set()

        listener = loop.create_task(listen())
        try:
            with self._service.sessions.in_use(self._session), self._watching(news):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                more = True
                while more and not self._disconnected:
                    news.clear()
                    chunk, more = self._next()
                    if chunk or not more:
                        await send({"type": "http.response.body", "body": chunk, "more_body": more})
                    elif not await _set_within(news, HEARTBEAT):
                        await send({"type": "http.response.body", "body": self._comment(), "more_body": True})
        finally:
            listener.cancel()

    def _comment(self) -> bytes:
        return comment(self._service.engine.prompt_progress(self._session))

    @contextmanager
    def _watching(self, news: asyncio.Event) -> Iterator[None]:
        """Set `news` after each commit while the block runs. Commits until the loop wakes up cause one wake-up only."""
        client, pending = self._service.engine_client, False

        def wake() -> None:
            nonlocal pending
            pending = False
            news.set()

        def watcher() -> None:
            nonlocal pending
            if not pending:
                pending = True
                client.put(wake)

        with self._session.watched(watcher):
            yield

    def _next(self) -> tuple[bytes, bool]:
        """The events to send now, and whether more can follow."""
        session = self._session
        # The engine's thread appends tokens before it sets the end. So read the end first: all its tokens are there.
        finish_reason, gone, ended = session.finish_reason, session.gone, self._service.engine.ended
        events = b"".join(self._tokens())
        if finish_reason is not None:
            return events + event("end", StreamEnd(total_tokens=self._sent, finish_reason=finish_reason)), False
        error: SpecPairError | None = None
        if gone:
            error = UnknownSession(f"session {session.id} was deleted, or expired, while it was streamed")
        else:
            error = ended
        return (events, True) if error is None else (events + event("error", ErrorResponse.of(error)), False)

    def _tokens(self) -> Iterator[bytes]:
        """Events with the tokens committed since the last call; target-decoded tokens have events of their own."""
        for run in self._session.news(self._sent):
            data = StreamedTokens(
                position=run.position,
                tokens=run.tokens,
                target_decoded=run.target_decoded,
                forward_ms=milliseconds(run.forward),
                **run.details._asdict(),
            )
            yield event("tokens", data)
            self._sent = run.position + len(run.tokens)


async def _set_within(news: asyncio.Event, seconds: float) -> bool:
    """Wait up to `seconds` for `news`. Returns whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        return False
    return True
