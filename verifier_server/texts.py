"""What `/generate` says: the whole text in one reply, or its parts as they come."""

import codecs
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from speculation import wire
from speculation.errors import SpecPairError
from verifier_server.events import event
from verifier_server.generating import Text
from verifier_server.jobs import Answer


def summary(text: Text, last: Answer) -> dict[str, Any]:
    """The reply, and the last event of a stream."""
    session, backend, speculation = text.session, text.engine.backend, text.speculation
    generated = session.tokens[session.prompt_len :]
    body = {
        "text": backend.vocabulary.decode(generated).decode(errors="replace"),
        "token_ids": generated,
        "prompt_tokens": session.prompt_len,
        "generated_tokens": len(generated),
        "finish_reason": session.finish_reason,
        "model": backend.model_name,
        "mode": "target" if speculation is None else "fused",
        "sampling": wire.sampling_body(session.sampling, session.strategy, session.threshold),
        "timing": last.timing,
    }
    if speculation is not None:
        body |= {"draft_model": speculation.draft_model, "speculation": speculation.body()}
    decisions = session.decided(session.prompt_len, len(session.tokens))
    return body if decisions is None else body | {"decisions": decisions}


async def text_events(text: Text, answers: AsyncGenerator[Answer]) -> AsyncIterator[bytes]:
    """The events of a stream: tokens with their text, then the summary, or an error. Closes `answers`."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    vocabulary = text.engine.backend.vocabulary
    last: Answer | None = None
    try:
        async with aclosing(answers):  # a reader who leaves stops the decoding at once
            async for answer in answers:
                last = answer
                part = decoder.decode(vocabulary.decode(answer.tokens), final=answer.finish_reason is not None)
                body: dict[str, Any] = {"position": answer.position, "tokens": answer.tokens, "text": part}
                if text.speculation is not None:
                    body |= {"judged": answer.judged, "accepted": answer.stood}
                yield event("tokens", body if answer.decisions is None else body | {"decisions": answer.decisions})
    except SpecPairError as error:
        yield event("error", error.body())
        return
    assert last is not None
    yield event("end", summary(text, last))
