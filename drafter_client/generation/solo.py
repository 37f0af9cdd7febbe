"""Plain decoding with one model on this machine, without a verifier; it samples as a pair does."""

from collections.abc import Callable, Generator

from backends.base import Backend, Entry, top_logits_spec
from drafter_client.errors import BadPrompt
from drafter_client.generation.observer import Committed
from drafter_client.metrics.statistics import Stats
from drafter_client.metrics.token_source import TokenSource
from speculation.sampling.sampling import Sampling, choose


def run_solo(
    backend: Backend,
    prompt_ids: list[int],
    max_tokens: int,
    sampling: Sampling,
    stats: Stats,
    clock: Callable[[], float],
) -> Generator[Committed, None, None]:
    """Yield each token as it is sampled, at most `max_tokens`; fill `stats`. `clock`: returns seconds.

    Raises BadPrompt if the prompt leaves no room in the context.
    """
    if len(prompt_ids) >= backend.context_length:
        raise BadPrompt(
            f"the prompt has {len(prompt_ids)} tokens, the context holds {backend.context_length} with the answer: "
            "shorten it, or give a larger --context"
        )
    began = before = clock()
    stats.prompt_tokens = len(prompt_ids)
    stats.sampling = {"seed": sampling.seed, "temperature": sampling.temperature}
    stats.sampling |= {"top_k": sampling.top_k, "top_p": sampling.top_p}
    tokens = list(prompt_ids)
    limit = len(tokens) + max_tokens
    if backend.context_length < limit:
        limit = stats.context = backend.context_length
    held, wanted = 0, top_logits_spec(sampling, backend.vocabulary.size)
    try:
        while stats.finish_reason is None:
            feed = tokens[held : held + backend.max_batch_tokens]
            rows = backend.extend_top_logits([Entry(0, held, feed, len(feed) - 1)], [wanted])[0]
            held += len(feed)
            if held < len(tokens):
                continue
            token = choose(rows[0], sampling, len(tokens))
            now = clock()
            stats.wrote([(token, TokenSource.BONUS)], 1e3 * (now - before))
            stats.times.prefill, before = stats.ttft_ms, now
            tokens.append(token)
            if token in backend.vocabulary.ends:
                stats.finish_reason = "stop"
            elif len(tokens) >= limit:
                stats.finish_reason = "length"
            yield Committed([(token, TokenSource.BONUS)])
    finally:
        stats.total_ms = 1e3 * (clock() - began)
