"""The server-sent events of a session's committed tokens."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from specpair.http_service.openapi.operation import OWN_ERRORS
from specpair.http_service.replies.events import HEARTBEAT, comment, event_bytes
from specpair.protocol.errors import UnknownSession
from specpair.protocol.responses import PrefillResponse, StreamedTokens, StreamEnd
from specpair.protocol.times import milliseconds
from verifier_server.service import Service
from verifier_server.sessions import CommittedRun, Session


async def committed_tokens(
    service: Service, session: Session, position: int, opened: PrefillResponse | None = None
) -> AsyncIterator[bytes]:
    """Events with the tokens committed from `position` on, until the session ends.

    `opened`: the reply that opened the session, for an event before them.

    A slow reader neither blocks the engine nor fills a queue: all tokens committed since the last event are sent at
    once, target-decoded ones in events of their own.
    """
    news = asyncio.Event()
    first = b"" if opened is None else event_bytes(opened.body(), "open")
    with _watching(service, session, news):
        while True:
            news.clear()
            # The engine's thread appends tokens before it sets the end, which is read first: all its tokens are there.
            finish_reason, gone, ended = session.finish_reason, session.gone, service.engine.ended
            events, first = first, b""
            for run in session.news(position):
                events += event_bytes(_told(run).body(), "tokens")
                position = run.position + len(run.tokens)
            if gone:
                ended = UnknownSession(f"session {session.id} was deleted, or expired, while it was streamed")
            if finish_reason is not None:
                events += event_bytes(StreamEnd(total_tokens=position, finish_reason=finish_reason).body(), "end")
            elif ended is not None:
                events += OWN_ERRORS.last_event(ended)
            if events:
                yield events
            if finish_reason is not None or ended is not None:
                return
            if not events and not await _set_within(news, HEARTBEAT):
                yield comment(service.engine.prompt_progress(session))


@contextmanager
def _watching(service: Service, session: Session, news: asyncio.Event) -> Iterator[None]:
    """Set `news` after each commit while the block runs. Commits until the loop wakes up cause one wake-up only."""
    client, pending = service.engine_client, False

    def wake() -> None:
        nonlocal pending
        pending = False
        news.set()

    def watcher() -> None:
        nonlocal pending
        if not pending:
            pending = True
            client.put(wake)

    with session.watched(watcher):
        yield


def _told(run: CommittedRun) -> StreamedTokens:
    return StreamedTokens(
        position=run.position,
        tokens=run.tokens,
        target_decoded=run.target_decoded,
        forward_ms=milliseconds(run.forward),
        **run.details._asdict(),
    )


async def _set_within(news: asyncio.Event, seconds: float) -> bool:
    """Wait up to `seconds` for `news`. Returns whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        return False
    return True
