"""`drafter solo`: one model alone, on this machine or on the verifier, with the time of each token."""

import argparse
import time
from contextlib import closing
from dataclasses import replace

from drafter_client.cli.shared_steps import (
    api_key,
    check_system,
    drawing_options,
    engine_of,
    prompt_ids,
    read_prompt,
    said_of_loading,
    say_notice,
    say_outage,
    say_prompt,
    show,
)
from drafter_client.conversation import chat_ids, conversation
from drafter_client.display.progress import loading
from drafter_client.display.readout import Readout
from drafter_client.draft_sources import load_model, named_file
from drafter_client.errors import BadPrompt
from drafter_client.generation.counting import StatsCounter
from drafter_client.generation.events import prompt_reader, to_all
from drafter_client.generation.generation import Generation
from drafter_client.generation.solo import run_solo
from drafter_client.generation.text_session import TextSession
from drafter_client.metrics.statistics import SOLO, Stats
from drafter_client.options import Mode
from drafter_client.pair import Pair
from models import DEFAULT_DRAFT, DEFAULT_TARGET

_OF_A_VERIFIER = ("strategy", "noise")  # sampling settings that one model alone does not have
_SHIPPED = {"target": DEFAULT_TARGET, "draft": DEFAULT_DRAFT}


def run_solo_command(options: argparse.Namespace) -> int:
    """Generate the text and show it with its metrics. Returns the exit status."""
    check_system(options)
    prompt = read_prompt(options)
    chosen = replace(drawing_options(options), mode=Mode.TARGET).settled()
    readout = Readout(as_json=options.json, stream=options.stream, stats=options.stats)
    if options.which == "server":
        verifier = {"api_key": api_key(options), "patience": options.patience}
        with said_of_loading() as on_wait:
            pair = Pair(
                options.verifier,
                None,
                **verifier,
                on_wait=on_wait,
                on_outage=say_outage(),
                on_prompt=say_prompt(),
                on_notice=say_notice,
            )
        with pair:
            return show(pair.generate(prompt_ids(pair, prompt, options.chat, options.system), chosen), readout)
    engine = engine_of(options)
    if options.hf is not None:
        path = named_file(options.hf, options.backend, engine, loading)
    else:
        path = options.model or _SHIPPED[options.which]
    with closing(load_model(options.backend, engine, path, progress=loading)) as backend:
        if options.chat:
            messages = conversation(prompt, options.system)
            ids = chat_ids(backend.chat_template, backend.vocabulary, messages)
        else:
            ids = backend.vocabulary.encode(prompt)
        if not ids:
            raise BadPrompt("the prompt is empty, as the model reads it: give at least one character that is no space")
        described = {name: value for name, value in chosen.described().items() if name not in _OF_A_VERIFIER}
        stats = Stats(model=backend.model_name, mode=SOLO, sampling=described)
        if len(ids) + chosen.max_tokens > backend.context_length:
            stats.context = backend.context_length
        text = TextSession(ids)
        tell = to_all(StatsCounter(stats, text).take, prompt_reader(say_prompt()))
        run = run_solo(backend, text, chosen.max_tokens, chosen.sampling, tell, time.perf_counter)
        return show(Generation(run, backend.vocabulary, text, chosen, stats), readout)
