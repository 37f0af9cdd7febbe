"""Tokens per second of texts that the server writes: by the target alone, and in mode fused (server-side drafting).

Method. A verifier process serves the target padded until a step takes `--step-ms` here, and beside it each of the two
draft models that ship, one thread each. `--texts` held-out prompts (one seed each) are written by one client, or by
four at once, each asking for the next text when its last has come; all tokens over all the time, prompts included.
Modes take turns, in another order from repeat to repeat. Printed: median (smallest … largest) over `--repeats`.

    python -m benchmarks.fused [--tokens 128] [--texts 4] [--repeats 3]
"""

import argparse
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from benchmarks.harness.models import CONTEXT, DRAFTERS, held_out_prompts
from benchmarks.harness.report import Report, options_of
from benchmarks.harness.texts import Written, by_library
from drafter_client import Mode, Options, Pair
from simulator.paced.padded_target import padded_target
from specpair.child_processes.serving import verifier

MODES = (Mode.TARGET, Mode.FUSED)
AT_ONCE = (1, 4)
FLAGS = {
    **{"tokens": 128, "texts": 4, "repeats": 3, "temperature": 0.8, "step-ms": 40.0},
    "drafters": {"default": list(DRAFTERS), "choices": DRAFTERS},
}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("fused", options)
    models: dict[str, Any] = {"model": padded_target(options.step_ms), "threads": 1, "slots": 4, "context": CONTEXT}
    for name in options.drafters:
        with verifier(**models, draft_model=DRAFTERS[name], draft_slots=4, draft_threads=1) as server:
            for at_once in AT_ONCE:
                report.line(f"{name:>6}, {at_once} at once: {_compared(server.url, at_once, options)}")
    report.save()


def _compared(url: str, at_once: int, options: argparse.Namespace) -> str:
    """One draft model, for one number of texts at once."""
    rates: dict[Mode, list[float]] = defaultdict(list)
    written: dict[Mode, list[Written]] = defaultdict(list)
    with Pair(url, None, texts=at_once) as pair, ThreadPoolExecutor(at_once) as clients:
        prompts = [pair.encode(prompt) for prompt in held_out_prompts(options.texts)]
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
    acceptance = sum(each.accepted for each in fused) / max(1, sum(each.drafted for each in fused))
    differing = sum(a.tokens != b.tokens for a, b in zip(*written.values(), strict=True))
    spreads = (f"{mode} {median(rates[mode]):.1f} ({min(rates[mode]):.1f} … {max(rates[mode]):.1f})" for mode in MODES)
    return (
        f"{', '.join(f'{spread} tokens/s' for spread in spreads)}; "
        f"{median(rates[Mode.FUSED]) / median(rates[Mode.TARGET]):.2f} times; "
        f"acceptance {acceptance:.2f}; texts that differ (near-ties): {differing}"
    )


if __name__ == "__main__":
    main()
