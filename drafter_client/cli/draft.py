"""`drafter`: one text by the pair, streamed, with its metrics."""

import argparse

from drafter_client.cli.shared_steps import (
    check_draft_n,
    check_system,
    pair_of,
    prompt_ids,
    read_prompt,
    show,
    text_options,
)
from drafter_client.display.readout import Readout
from drafter_client.metrics.statistics import Baseline
from drafter_client.options import Mode
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT


def run_draft(options: argparse.Namespace) -> int:
    """Generate the text and show it with its metrics. Returns the exit status."""
    check_system(options)
    prompt = read_prompt(options)
    chosen = text_options(options)
    with pair_of(options) as pair:
        check_draft_n(pair, options)
        ids = prompt_ids(pair, prompt, options.chat, options.system)
        generation = pair.generate(ids, chosen.cold() if options.baseline else chosen)

        piece = generation.piece if options.verbose else None
        readout = Readout(as_json=options.json, stream=options.stream, stats=options.stats, piece=piece)

        def measure() -> None:
            if options.baseline:
                readout.busy("measuring the target alone")
                alone = pair.generate(ids, generation.options.in_mode(Mode.TARGET).cold()).read().stats
                same = options.strategy in DRAFTER_INVARIANT
                generation.stats.baseline = Baseline.of(alone, generation.stats.token_ids if same else None)

        return show(generation, readout, measure)
