"""The bodies of replies to `/generate`: the whole text at once, or server-sent events with its parts."""

import codecs
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from specpair.http_service.openapi.operation import OWN_ERRORS
from specpair.http_service.replies.events import comment, event_bytes
from specpair.protocol.errors import SpecPairError
from specpair.protocol.response_fields import SamplingReport
from specpair.protocol.responses import GenerateOpenEvent, GenerateResponse, GenerateTokensEvent
from verifier_server.engine.requests import Answer
from verifier_server.generation.generator import GenerationTask
from verifier_server.sessions import Session


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
        sampling=sampling_report(session),
        timing=last.timing,
        cached_tokens=session.cached_tokens,
        draft_model=None if counts is None else counts.draft_model,
        speculation=None if counts is None else counts.body(),
        **session.details_of(session.prompt_len)._asdict(),
    )


async def text_events(
    text: GenerationTask, answers: AsyncGenerator[Answer | None], identity: str
) -> AsyncIterator[bytes]:
    """The events of a stream: `open` (the session), `tokens` (with their text), then `end` (the summary) or `error`.

    A None among `answers` becomes a comment, which keeps proxies from closing the connection, and says how much of a
    prompt is read. Closes `answers`.

    `identity`: the verifier's.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    session, vocabulary = text.session, text.engine.info.vocabulary
    # A character is sent with its last token, even if earlier tokens of it were committed before this stream.
    decoder.decode(vocabulary.decode(session.tokens[session.prompt_len : text.position]))
    last: Answer | None = None
    try:
        async with aclosing(answers):  # stops decoding at once when the reader disconnects
            opened = GenerateOpenEvent(
                session_id=session.id,
                prompt_len=session.prompt_len,
                position=text.position,
                identity=identity,
                sampling=sampling_report(session),
            )
            yield event_bytes(opened.body(), "open")
            async for answer in answers:
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


def sampling_report(session: Session) -> SamplingReport:
    """How the session's tokens are drawn."""
    return SamplingReport.of(session.spec)
