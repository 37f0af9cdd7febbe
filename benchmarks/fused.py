"""Tokens per second of texts that the server writes: by the target alone, and in mode fused (server-side drafting).

Method. A verifier process serves the target padded until a step takes `--step-ms` here (or `--target`), and beside it
each of the two draft models that ship, one thread each. `--texts` held-out prompts (one seed each) are written by one
client, or by four at once, each asking `/generate` for the next text when its last has come; all tokens over all the
time, prompts included. Modes take turns, in another order from repeat to repeat. Printed: median (smallest … largest)
over `--repeats`.

    python -m benchmarks.fused [--tokens 128] [--texts 4] [--repeats 3]
"""

import argparse
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.models import CONTEXT, DRAFTERS, held_out_prompts, padded_target
from benchmarks.harness.report import Report, options_of
from benchmarks.harness.serving import verifier
from drafter_client.http.client import VerifierClient

MODES = ("target", "fused")
AT_ONCE = (1, 4)
FLAGS = {
    **{"tokens": 128, "texts": 4, "repeats": 3, "temperature": 0.8, "step-ms": 40.0},
    "target": {"type": Path, "help": "a padded target of your own making"},
    "drafters": {"default": list(DRAFTERS), "choices": DRAFTERS},
}


def main() -> None:
    options = options_of(__doc__, FLAGS, "httpx")
    report = Report("fused", options)
    models = {"model": options.target or padded_target(options.step_ms), "threads": 1, "rows": 4, "context": CONTEXT}
    for name in options.drafters:
        with verifier(**models, draft_model=DRAFTERS[name], draft_rows=4, draft_threads=1) as server:
            VerifierClient(server.url).wait_until_ready()
            _compare(report, server.url, name, options)
    report.save()


def _compare(report: Report, url: str, name: str, options: argparse.Namespace) -> None:
    """One draft model, for each number of texts at once."""
    prompts = held_out_prompts(options.texts)
    for at_once in AT_ONCE:
        rates: dict[str, list[float]] = defaultdict(list)
        drafted = accepted = differing = 0
        for repeat in range(options.repeats):
            written: dict[str, list[Any]] = {}
            for mode in MODES[:: 1 if repeat % 2 == 0 else -1]:
                rate, written[mode] = _write(url, mode, prompts, at_once, 1000 * repeat, options)
                rates[mode].append(rate)
            for fused, target in zip(written["fused"], written["target"], strict=True):
                drafted += fused["speculation"]["drafted"]
                accepted += fused["speculation"]["accepted"]
                differing += fused["token_ids"] != target["token_ids"]
        ratio = median(rates["fused"]) / median(rates["target"])
        report.line(
            f"{name:>6}, {at_once} at once: "
            + ", ".join(f"{mode} {_spread(rates[mode])} tokens/s" for mode in MODES)
            + f"; {ratio:.2f} times; acceptance {accepted / max(1, drafted):.2f}; "
            f"texts that differ (near-ties): {differing}"
        )


def _write(
    url: str, mode: str, prompts: list[str], at_once: int, seed: int, options: argparse.Namespace
) -> tuple[float, list[Any]]:
    """All texts in one mode: tokens per second, and the responses."""

    import httpx

    def write(number: int) -> Any:
        body = {"prompt": prompts[number], "mode": mode, "seed": seed + number, "temperature": options.temperature}
        response = http.post("/generate", json={**body, "max_tokens": options.tokens})
        return response.raise_for_status().json()

    with httpx.Client(base_url=url, timeout=600, trust_env=False) as http, ThreadPoolExecutor(at_once) as clients:
        began = time.perf_counter()
        replies = list(clients.map(write, range(len(prompts))))
        seconds = time.perf_counter() - began
    return sum(reply["generated_tokens"] for reply in replies) / seconds, replies


def _spread(rates: list[float]) -> str:
    return f"{median(rates):.1f} ({min(rates):.1f} … {max(rates):.1f})"


if __name__ == "__main__":
    main()
