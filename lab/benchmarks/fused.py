"""Tokens per second of texts that the server writes: by the target alone, and in mode fused (server-side drafting).

Method. A verifier process serves a target, and beside it a draft model, one thread each. Without `--target` that is the
target that ships, padded until a step takes `--step-ms` here, and each of the two draft models that ship. As many
clients as `--at-once` says write texts of `--tokens` tokens, one seed each, and each asks for the next text when its
last has come; all tokens over all the time, prompts included. The modes take turns, in another order from repeat to
repeat. Printed: the median over `--repeats`, and how often fused is the target alone (smallest … largest).

    python -m lab.benchmarks.fused [--at-once 1 2 4 8] [--kinds code story] [--texts 4] [--tokens 128] [--repeats 3]
    python -m lab.benchmarks.fused --target BF16.gguf --draft SMALL.gguf
"""

import argparse
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

from drafter_client import Mode, Options, Pair
from lab.benchmarks.first_run import CODE, STORY, prompts_of
from lab.benchmarks.harness.models import CONTEXT, DRAFTERS
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Written, by_library
from lab.simulator.paced.padded_target import padded_target
from specpair.child_processes.serving import verifier

MODES = (Mode.TARGET, Mode.FUSED)
PROMPTS = 6  # different ones of a kind; further texts have other seeds
FLAGS = {
    **{"tokens": 128, "texts": 4, "repeats": 3, "temperature": 0.8, "step-ms": 40.0},
    "at-once": {"default": [1, 2, 4, 8], "help": "texts at once (default: 1 2 4 8)"},
    "kinds": {"default": [CODE, STORY], "choices": (CODE, STORY), "help": "of prompts (default: both)"},
    "target": {"default": "", "help": "GGUF file (default: the one that ships, padded)"},
    "draft": {"default": [*DRAFTERS], "help": "GGUF files, or small, twin (default: both of these)"},
}


def main() -> None:
    options = options_of(__doc__, FLAGS, "llama_cpp")
    report = Report("fused", options, f"fused_{Path(options.target).stem}" if options.target else None)
    slots = max(options.at_once)
    target = options.target or padded_target(options.step_ms)
    models: dict[str, Any] = {"model": target, "threads": 1, "slots": slots, "context": CONTEXT}
    for name in options.draft:
        draft = DRAFTERS.get(name, name)
        with (
            verifier(**models, draft_model=draft, draft_slots=slots, draft_threads=1) as server,
            Pair(server.url, None, texts=slots) as pair,
        ):
            for mode in MODES:  # engines make ready what they need
                by_library(pair, "x", Options(max_tokens=8, mode=mode))
            for kind in options.kinds:
                for at_once in options.at_once:
                    compared = _compared(pair, kind, at_once, options)
                    report.line(f"{Path(name).stem:>6}, {kind:>5}, {at_once} at once: {compared}")
    report.save()


def _compared(pair: Pair, kind: str, at_once: int, options: argparse.Namespace) -> str:
    """One draft model, for one kind of texts and one number of them at once."""
    rates: dict[Mode, list[float]] = defaultdict(list)
    written: dict[Mode, list[Written]] = defaultdict(list)
    prompts = [*islice(cycle(prompts_of(kind, pair, PROMPTS)), max(options.texts, at_once))]
    with ThreadPoolExecutor(at_once) as clients:
        for repeat in range(options.repeats):
            for mode in MODES[:: 1 if repeat % 2 == 0 else -1]:
                seeds = range(1000 * repeat, 1000 * repeat + len(prompts))
                same = {"max_tokens": options.tokens, "temperature": options.temperature, "mode": mode}
                wanted = [Options(seed=seed, **same) for seed in seeds]
                began = time.perf_counter()
                texts = list(clients.map(by_library, [pair] * len(prompts), prompts, wanted))
                rates[mode].append(sum(len(text.tokens) for text in texts) / (time.perf_counter() - began))
                written[mode] += texts
    fused = [text.stats for text in written[Mode.FUSED]]
    drafted, accepted = sum(each.drafted for each in fused), sum(each.accepted for each in fused)
    pairs = zip(*(written[mode] for mode in MODES), strict=True)
    differing = sum(alone.tokens != drafted_for.tokens for alone, drafted_for in pairs)
    times = sorted(b / a for a, b in zip(*(rates[mode] for mode in MODES), strict=True))
    return (
        f"{', '.join(f'{mode} {median(rates[mode]):.1f}' for mode in MODES)} tokens/s; "
        f"{median(times):.2f} times ({times[0]:.2f} … {times[-1]:.2f}); "
        f"{drafted} drafted, {accepted} accepted; texts that differ (near-ties): {differing}"
    )


if __name__ == "__main__":
    main()
