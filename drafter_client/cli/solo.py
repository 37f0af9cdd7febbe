"""`drafter solo`: one model alone, on this machine or on the verifier, with the time of each token."""

import argparse
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace

from drafter_client.cli.steps import (
    api_key,
    check_system,
    drawing_options,
    engine_of,
    prompt_ids,
    read_prompt,
    show,
    trust,
    verifier,
)
from drafter_client.conversation import chat_ids, conversation
from drafter_client.display.progress import loading, say_notice, say_outage, say_prompt, verifier_loading
from drafter_client.display.readout import Readout
from drafter_client.draft_sources import load_model, named_file
from drafter_client.errors import BadOption, BadPrompt
from drafter_client.generation.counting import StatsCounter
from drafter_client.generation.events import Began, Committed, Ended, Listener, PromptRead, prompt_reader, to_all
from drafter_client.generation.generation import Generation
from drafter_client.http.text_session import TextSession
from drafter_client.options import Mode, PairKeywords
from drafter_client.pair import Pair
from drafter_client.statistics import SOLO, Stats
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.engines.backend import Backend, Entry
from specpair.grammar.of_text import processors_of
from specpair.protocol.prompt_progress import PromptProgress
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.sampling.sampling import Sampling, choose, top_logits_spec


def run_solo(
    backend: Backend, text: TextSession, max_tokens: int, sampling: Sampling, tell: Listener, clock: Callable[[], float]
) -> Generator[Committed, None, None]:
    """Yield each token as it is sampled, at most `max_tokens`.

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


_OF_A_VERIFIER = ("strategy", "noise")  # sampling settings that one model alone does not have
_SHIPPED = {"target": DEFAULT_TARGET, "draft": DEFAULT_DRAFT}


def run_solo_command(options: argparse.Namespace) -> int:
    """Generate the text and show it with its metrics. Returns the exit status."""
    check_system(options)
    prompt = read_prompt(options)
    chosen = replace(drawing_options(options), mode=Mode.TARGET).settled()
    readout = Readout(as_json=options.json, stream=options.stream, stats=options.stats)
    if options.which == "server":
        told = PairKeywords(on_outage=say_outage(), on_prompt=say_prompt(), on_notice=say_notice)
        told |= {"api_key": api_key(options), "trust": trust(options), "patience": options.patience}
        with verifier_loading() as told["on_wait"]:
            pair = Pair(verifier(options), None, **told)
        with pair:
            return show(pair.generate(prompt_ids(pair, prompt, options.chat, options.system), chosen), readout)
    engine = engine_of(options)
    if options.hf is not None:
        path = named_file(options.hf, options.backend, engine, loading)
    else:
        path = options.model or _SHIPPED[options.which]
    with closing(load_model(options.backend, engine, path, progress=loading, drafts=False)) as backend:
        if options.chat:
            messages = conversation(prompt, options.system)
            ids = chat_ids(backend.chat_template, backend.vocabulary, messages)
        else:
            ids = backend.vocabulary.encode(prompt)
        if not ids:
            raise BadPrompt("the model reads the prompt as empty: give at least one character that is no space")
        described = {name: value for name, value in chosen.described().items() if name not in _OF_A_VERIFIER}
        stats = Stats(model=backend.model_name, mode=SOLO, sampling=described)
        if len(ids) + chosen.max_tokens > backend.context_length:
            stats.context = backend.context_length
        text = TextSession(ids)
        tell = to_all(StatsCounter(stats, text).take, prompt_reader(say_prompt()))
        run = run_solo(backend, text, chosen.max_tokens, chosen.sampling, tell, time.perf_counter)
        return show(Generation(closing(run), backend.vocabulary, text, chosen, stats), readout)
