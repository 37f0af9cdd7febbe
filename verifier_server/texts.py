"""What `/generate` says: the whole text in one reply, or its parts as they come."""

import codecs
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from speculation import wire
from speculation.errors import SpecPairError
from verifier_server.events import event
from verifier_server.jobs import Answer
from verifier_server.service import Service
from verifier_server.sessions import Session


def summary(service: Service, session: Session, last: Answer) -> dict[str, Any]:
    """The reply, and the last event of a stream."""
    backend = service.engine.backend
    generated = session.tokens[session.prompt_len :]
    body = {
        "text": backend.vocabulary.decode(generated).decode(errors="replace"),
        "token_ids": generated,
        "prompt_tokens": session.prompt_len,
        "generated_tokens": len(generated),
        "finish_reason": session.finish_reason,
        "model": backend.model_name,
        "sampling": wire.sampling_body(session.sampling, session.strategy, session.threshold),
        "timing": last.timing,
    }
    decisions = session.decided(session.prompt_len, len(session.tokens))
    return body if decisions is None else body | {"decisions": decisions}


async def text_events(service: Service, session: Session, answers: AsyncGenerator[Answer]) -> AsyncIterator[bytes]:
    """The events of a stream: tokens with their text, then the summary, or an error. Closes `answers`."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    vocabulary = service.engine.backend.vocabulary
    last: Answer | None = None
    try:
        async with aclosing(answers):  # a reader who leaves stops the decoding at once
            async for answer in answers:
                last = answer
                text = decoder.decode(vocabulary.decode(answer.tokens), final=answer.finish_reason is not None)
                body = {"position": answer.position, "tokens": answer.tokens, "text": text}
                yield event("tokens", body if answer.decisions is None else body | {"decisions": answer.decisions})
    except SpecPairError as error:
        yield event("error", error.body())
        return
    assert last is not None
    yield event("end", summary(service, session, last))
