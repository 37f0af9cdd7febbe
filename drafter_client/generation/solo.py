"""Plain decoding with one model on this machine, without a verifier; it samples as a pair does."""

from collections.abc import Callable, Generator

from drafter_client.errors import BadOption, BadPrompt
from drafter_client.generation.events import Began, Committed, Ended, Listener, PromptRead
from drafter_client.generation.text_session import TextSession
from specpair.engines.backend import Backend, Entry, top_logits_spec
from specpair.grammar.of_text import processors_of
from specpair.protocol.prompt_progress import PromptProgress
from specpair.speculation.acceptance.token_source import TokenSource
from specpair.speculation.sampling.sampling import Sampling, choose


def run_solo(
    backend: Backend,
    text: TextSession,
    max_tokens: int,
    sampling: Sampling,
    tell: Listener,
    clock: Callable[[], float],
) -> Generator[Committed, None, None]:
    """Yield each token as it is sampled, at most `max_tokens`.

    `tell`: takes the events.
    `clock`: returns seconds.

    Raises BadPrompt if the prompt leaves no room in the context, BadOption for a biased id that the model lacks, and
    InvalidRequest for a grammar that is wrong.
    """
    tokens, size = text.known, backend.vocabulary.size
    token = max(sampling.logit_bias, default=0)
    if token >= size:
        raise BadOption(f"logit_bias names {token}, which is no token id of the model: its ids are 0 to {size - 1}")
    if len(tokens) >= backend.context_length:
        raise BadPrompt(
            f"the prompt has {len(tokens)} tokens, the context holds {backend.context_length} with the answer: "
            "shorten it, or give a larger --context"
        )
    tell(Began(len(tokens)), clock())
    limit = min(len(tokens) + max_tokens, backend.context_length)
    processors = processors_of(sampling, backend.vocabulary, len(text.prompt_ids))
    held, wanted = 0, top_logits_spec(sampling, size, whole=processors is not None)
    try:
        while text.finish_reason is None:
            feed = tokens[held : held + backend.max_batch_tokens]
            rows = backend.extend_top_logits([Entry(0, held, feed, len(feed) - 1)], [wanted])[0]
            held += len(feed)
            if held < len(tokens):
                tell(PromptRead(PromptProgress(held, len(tokens))), clock())
                continue
            row = rows[0]
            if processors is not None:
                processors.commit(tokens)
                row = processors.process(row)
            token = choose(row, sampling, len(tokens))
            committed = Committed(len(tokens), [(token, TokenSource.BONUS)])
            tokens.append(token)
            if token in backend.vocabulary.ends:
                text.finish_reason = "stop"
            elif len(tokens) >= limit:
                text.finish_reason = "length"
            tell(committed, clock())
            yield committed
    finally:
        tell(Ended(text.finish_reason), clock())
