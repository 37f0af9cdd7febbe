"""Tokens per second of the default pair with real compute: fixed draft lengths, `auto`, and the target alone.

Method. The verifier runs in its own process, one thread, and serves the default target padded to 32 layers so wide
that a step costs `--step-ms` here (or `--target`); this process drafts, one thread, over loopback HTTP. Prompts are
four lines each out of files of the standard library that the pair was not trained on. For each drafter and
temperature, every prompt is generated in turn by the target alone (`/generate`, streamed by the same server), by the
pair in lockstep with k = 1 … 8 and with as many as pay (`lockstep`), and as users get it (`auto`): a slow moment
of the machine falls on all of them alike. Each text begins knowing what the verifier says its passes cost, and nothing
of the text or the drafter. Text differs from prompt to prompt, not from method to method: one seed a prompt. A column's
figure is all its tokens over all its seconds, prefill included, divided by the target-only figure. The range is that
ratio's smallest and largest over
`--repeats` passes. The verify-cost curve is measured first, in a process with nothing else to do.

    python -m benchmarks.end_to_end [--tokens 128] [--prompts 4] [--repeats 2]
    python -m benchmarks.end_to_end --drafters twin --temperatures 0 --lengths 3 5 7 --skip 6 --prompts 12  # a part
"""

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.drafters import load_drafter
from benchmarks.harness import held_out_prompts, padded_target, step_ms, verifier
from benchmarks.report import Report, add_save
from drafter_client.cli.program import SWITCH_INTERVAL
from drafter_client.generation.server_written import served
from drafter_client.generation.start import speculate
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import ResponseBounds
from drafter_client.metrics.statistics import Stats
from drafters.draft_model import ModelDrafter
from models import DEFAULT_DRAFT, DEFAULT_TWIN
from speculation.policy.schedule import LOCKSTEP, Mechanisms
from speculation.sampling.sampling import Sampling

DRAFTERS = {"small": DEFAULT_DRAFT, "twin": DEFAULT_TWIN}
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--step-ms", type=float, default=30.0)
    parser.add_argument("--target", type=Path, help="a padded target of your own making")
    parser.add_argument("--skip", type=int, default=0, help="prompts to leave out at the beginning")
    parser.add_argument("--drafters", nargs="+", choices=DRAFTERS, default=list(DRAFTERS))
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 0.8])
    parser.add_argument("--lengths", nargs="+", type=int, default=list(range(1, 9)), help="fixed draft lengths")
    add_save(parser)
    options = parser.parse_args()
    narrowed = ("drafters", "temperatures", "lengths", "skip")
    partly = any(getattr(options, name) != parser.get_default(name) for name in narrowed)
    report = Report("end_to_end", options, "end_to_end_part" if partly else "end_to_end")
    sys.setswitchinterval(SWITCH_INTERVAL)
    target = options.target or padded_target(options.step_ms)
    for name, in_turn in (("same width again", False), ("another width each time", True)):
        curve = step_ms(target, widths=WIDTHS, in_turn=in_turn)
        figures = "  ".join(f"{width}: {ms:.1f}" for width, ms in curve.items())
        report.line(f"verify cost, ms by tokens in the pass, {name}: {figures}")
    with verifier(model=target, threads=1, rows=2, context=1024) as server:
        client = VerifierClient(server.url)
        client.wait_until_ready()
        for drafter in options.drafters:
            for temperature in options.temperatures:
                _compare(report, client, DRAFTERS[drafter], temperature, options)
    report.save()


def _compare(
    report: Report, client: VerifierClient, model: Path, temperature: float, options: argparse.Namespace
) -> None:
    """One drafter at one temperature: all draft lengths against the target alone."""
    backend = load_drafter(model)
    info = client.check_vocabulary(backend.vocabulary, backend.model_name)
    seconds: dict[tuple[int, int | str], float] = defaultdict(float)
    counts: dict[tuple[int, int | str], int] = defaultdict(int)
    judged: dict[int | str, list[int]] = defaultdict(lambda: [0, 0, 0])
    differing = 0
    lengths: list[int | str] = [*options.lengths, "lockstep", "auto"]
    for repeat in range(options.repeats):
        for at, prompt in enumerate(held_out_prompts(options.skip + options.prompts)[options.skip :]):
            sampling = Sampling(seed=1000 * repeat + at, temperature=temperature)
            request: dict[str, Any] = {"max_tokens": options.tokens, "temperature": temperature, "seed": sampling.seed}
            prompt_ids = backend.vocabulary.encode(prompt)
            texts = []
            for length in lengths:
                stats = Stats()
                run = speculate(
                    client,
                    ModelDrafter(backend, sampling, info.vocabulary.size),
                    prompt_ids,
                    request,
                    info,
                    stats,
                    time.perf_counter,
                    length=length if isinstance(length, int) else None,
                    mechanisms=Mechanisms() if length == "auto" else LOCKSTEP,
                )
                for _ in run:
                    pass
                seconds[repeat, length] += stats.total_ms / 1e3
                counts[repeat, length] += stats.generated_tokens
                texts.append(stats.token_ids)
                for column, value in enumerate((stats.rounds, stats.drafted, stats.accepted)):
                    judged[length][column] += value
            alone, bounds = Stats(), ResponseBounds(client.url, info.vocabulary.size, info.context_length)
            for _ in served(client, prompt_ids, request, bounds, alone, time.perf_counter):
                pass
            counts[repeat, "target"] += alone.generated_tokens
            seconds[repeat, "target"] += alone.total_ms / 1e3
            texts.append(alone.token_ids)
            differing += sum(text != texts[0] for text in texts)
    backend.close()
    repeats = range(options.repeats)

    def rate(length: int | str, chosen: range = repeats) -> float:
        return sum(counts[r, length] for r in chosen) / sum(seconds[r, length] for r in chosen)

    report.line(f"\n{backend.model_name}, temperature {temperature}; target alone {rate('target'):.1f} tokens/s")
    for length in lengths:
        ratios = [rate(length, range(r, r + 1)) / rate("target", range(r, r + 1)) for r in repeats]
        rounds, drafted, accepted = judged[length]
        name = f"k={length}" if isinstance(length, int) else length
        report.line(
            f"  {name:>8}  {rate(length):6.1f} tokens/s  {rate(length) / rate('target'):.2f}x"
            f"  ({min(ratios):.2f} … {max(ratios):.2f})  acceptance {accepted / max(1, drafted):.2f}"
            f"  tokens a round {1 + accepted / max(1, rounds):.2f}  drafted a round {drafted / max(1, rounds):.2f}"
        )
    best = max(options.lengths, key=rate)
    report.line(
        f"  of the best fixed (k={best}): lockstep {rate('lockstep') / rate(best):.3f}, "
        f"auto {rate('auto') / rate(best):.3f}; texts that differ: {differing}"
    )


if __name__ == "__main__":
    main()
