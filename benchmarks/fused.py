"""Tokens per second of texts that the verifier writes by itself: by the target alone, and drafted there, too.

Method. The target is the one that ships, padded until a step costs `--step-ms` here on one thread (or `--target`);
beside it, on a thread of its own, each of the two draft models that ship. A verifier process serves both over loopback
HTTP. Prompts are four lines each out of files of the standard library that no model here was trained on, one seed a
prompt. A measurement writes `--texts` texts by so many clients at once as the line says, each of which asks `/generate`
for the next when its last has come, as JSON; it counts all tokens over all the time, prompts included. Modes take
turns, and which comes first changes from repeat to repeat: a slow moment of the machine falls on both. A figure is
the median over `--repeats`, the range the smallest and the largest; times are those of the medians.

    python -m benchmarks.fused [--tokens 128] [--texts 4] [--repeats 3]
"""

import argparse
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.extras import need
from benchmarks.harness import held_out_prompts, padded_target, verifier
from benchmarks.report import Report, add_save
from drafter_client.http.client import VerifierClient
from models import DEFAULT_DRAFT, DEFAULT_TWIN

DRAFTERS = {"small": DEFAULT_DRAFT, "twin": DEFAULT_TWIN}
MODES = ("target", "fused")
AT_ONCE = (1, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--texts", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--step-ms", type=float, default=40.0)
    parser.add_argument("--target", type=Path, help="a padded target of your own making")
    parser.add_argument("--drafters", nargs="+", choices=DRAFTERS, default=list(DRAFTERS))
    add_save(parser)
    options = parser.parse_args()
    need("httpx")
    report = Report("fused", options)
    target = options.target or padded_target(options.step_ms)
    for name in options.drafters:
        with verifier(
            model=target, threads=1, rows=4, context=1024, draft_model=DRAFTERS[name], draft_rows=4, draft_threads=1
        ) as server:
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
            for told, alone in zip(written["fused"], written["target"], strict=True):
                drafted += told["speculation"]["drafted"]
                accepted += told["speculation"]["accepted"]
                differing += told["token_ids"] != alone["token_ids"]
        alone_rate, fused_rate = (median(rates[mode]) for mode in MODES)
        report.line(
            f"{name:>6}, {at_once} at once: "
            + ", ".join(f"{mode} {_spread(rates[mode])} tokens/s" for mode in MODES)
            + f"; {fused_rate / alone_rate:.2f} times; acceptance {accepted / max(1, drafted):.2f}; "
            f"texts that differ (near-ties): {differing}"
        )


def _write(
    url: str, mode: str, prompts: list[str], at_once: int, seed: int, options: argparse.Namespace
) -> tuple[float, list[Any]]:
    """All texts by one mode: tokens per second, and the replies."""

    import httpx

    def write(number: int) -> Any:
        body = {"prompt": prompts[number], "mode": mode, "seed": seed + number, "temperature": options.temperature}
        response = http.post("/generate", json={**body, "max_tokens": options.tokens})
        response.raise_for_status()
        return response.json()

    with httpx.Client(base_url=url, timeout=600, trust_env=False) as http, ThreadPoolExecutor(at_once) as clients:
        began = time.perf_counter()
        replies = list(clients.map(write, range(len(prompts))))
        seconds = time.perf_counter() - began
    return sum(reply["generated_tokens"] for reply in replies) / seconds, replies


def _spread(rates: list[float]) -> str:
    return f"{median(rates):.1f} ({min(rates):.1f} … {max(rates):.1f})"


if __name__ == "__main__":
    main()
