"""`drafter solo`: one model by itself, without a server."""

import argparse
import time
from contextlib import closing

from drafter_client.commands.common import engine_of, read_prompt, show
from drafter_client.errors import BadPrompt
from drafter_client.generation import Generation
from drafter_client.options import Options
from drafter_client.readout import Readout
from drafter_client.solo import run_solo
from drafter_client.sources import load_model
from drafter_client.stats import Stats


def run_solo_command(options: argparse.Namespace) -> int:
    """Exit status."""
    prompt = read_prompt(options)
    with closing(load_model(options.backend, engine_of(options), options.model)) as backend:
        prompt_ids = backend.vocabulary.encode(prompt)
        if not prompt_ids:
            raise BadPrompt("the prompt is empty, as the model reads it: give at least one character that is no space")
        chosen = Options(
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            seed=options.seed,
        ).settled()
        stats = Stats(model=backend.model_name, mode="solo")
        run = run_solo(backend, prompt_ids, chosen.max_tokens, chosen.sampling, stats, time.perf_counter)
        generation = Generation(run, backend.vocabulary, prompt_ids, chosen, stats)
        return show(generation, Readout(as_json=options.json, stream=not options.no_stream))
