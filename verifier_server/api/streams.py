"""Streams of a session's committed tokens, and whole texts as JSON or as server-sent events."""

import asyncio
import codecs
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager

from specpair.http_service.openapi.operation import OWN_ERRORS
from specpair.http_service.replies.events import HEARTBEAT, comment, event_bytes
from specpair.numbers import milliseconds
from specpair.protocol.errors import SpecPairError, UnknownSession
from specpair.protocol.response_fields import SamplingReport
from specpair.protocol.responses import (
    GenerateOpenEvent,
    GenerateResponse,
    GenerateTokensEvent,
    PrefillResponse,
    StreamedTokens,
    StreamEnd,
)
from verifier_server.engine.arrived_drafts import Answer
from verifier_server.generation.generator import GenerationTask
from verifier_server.service import Service
from verifier_server.sessions import Session


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
                told = StreamedTokens(
                    position=run.position,
                    tokens=run.tokens,
                    target_decoded=run.target_decoded,
                    forward_ms=milliseconds(run.forward),
                    **run.details._asdict(),
                )
                events += event_bytes(told.body(), "tokens")
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
            if not events:
                try:
                    async with asyncio.timeout(HEARTBEAT):
                        await news.wait()
                except TimeoutError:
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


def summary(text: GenerationTask, last: Answer) -> GenerateResponse:
    """The whole reply, and the data of a stream's `end` event. `last`: the engine's last answer."""
    session, backend, counts = text.session, text.engine.info, text.counts
    generated = session.tokens[session.prompt_len :]
    assert session.finish_reason is not None
    return GenerateResponse(
        session_id=session.id,
        text=backend.vocabulary.decode(generated).decode(errors="replace"),
        token_ids=generated,
        prompt_tokens=session.prompt_len,
        generated_tokens=len(generated),
        finish_reason=session.finish_reason,
        model=backend.model_name,
        mode="target" if counts is None else "fused",
        sampling=SamplingReport.of(session.spec),
        timing=last.timing,
        cached_tokens=session.cached_tokens,
        draft_model=None if counts is None else counts.draft_model,
        speculation=None if counts is None else counts.body(),
        **session.details_of(session.prompt_len)._asdict(),
    )


async def text_events(service: Service, text: GenerationTask) -> AsyncIterator[bytes]:
    """Generate `text`: `open` (the session), `tokens` (with their text), then `end` (the summary) or `error`.

    While no answer comes, a comment keeps proxies from closing the connection, and says how much of a prompt is read.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    session, vocabulary = text.session, text.engine.info.vocabulary
    # A character is sent with its last token, even if earlier tokens of it were committed before this stream.
    decoder.decode(vocabulary.decode(session.tokens[session.prompt_len : text.position]))
    opened = GenerateOpenEvent(
        session_id=session.id,
        prompt_len=session.prompt_len,
        position=text.position,
        identity=service.identity,
        sampling=SamplingReport.of(session.spec),
    )
    yield event_bytes(opened.body(), "open")
    last: Answer | None = None
    try:
        with closing(service.texts.begin(text)) as answers:  # stops decoding at once when the reader disconnects
            while not answers.finished:
                answer = await answers.next(HEARTBEAT)
                if answer is None:
                    yield comment(text.engine.prompt_progress(session))
                    continue
                first, last = last is None, answer
                part = decoder.decode(vocabulary.decode(answer.tokens), final=answer.finish_reason is not None)
                fused, ran = text.counts is not None, answer.round
                new = GenerateTokensEvent(
                    position=answer.position,
                    tokens=answer.tokens,
                    text=part,
                    judged=answer.judged if fused else None,
                    accepted=ran.accepted if fused and ran is not None else None,
                    cached_tokens=session.cached_tokens if first else 0,
                    **answer.details._asdict(),
                )
                yield event_bytes(new.body(), "tokens")
    except SpecPairError as error:
        yield OWN_ERRORS.last_event(error)
        return
    assert last is not None
    yield event_bytes(summary(text, last).body(), "end")
