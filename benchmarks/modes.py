"""Whether `drafter compare` finds the fastest mode over a short and a long link, and whether mode `auto` takes it.

Method. A verifier process serves `--target` (the one that ships, or one padded until a step costs `--step-ms` here)
and beside it the draft model of mode fused; each end has one thread. Between it and the drafter lies the link relay
(`benchmarks.relay`) with one of `--rtt-ms`. Through it `drafter compare` runs as a user would run it, on the cases that
ship. What is right is then found out without it: `--checks` longer texts behind prompts that no model here was trained
on are written in each mode by turns, other seeds and other texts than those compared. Right is the mode that wrote
them in the least time altogether; two modes are alike where that time differs by less than `--alike`, and then either
is right. At last one text in mode `auto` meets the first link and, from its middle on, the second. Rates are tokens per
second over whole texts, prompts included.

    python -m benchmarks.modes [--target default|padded] [--rtt-ms 0.2 50] [--runs 3]
"""

import argparse
import json
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.children import output
from benchmarks.extras import need
from benchmarks.harness import held_out_prompts, padded_target, verifier
from benchmarks.relay import Link, relay
from benchmarks.report import Report, add_save
from drafter_client import DraftModel, LoadOptions, Mode, Options, Pair, Tokens
from drafter_client.display.comparison_table import Way, shuffled
from models import DEFAULT_DRAFT, DEFAULT_TARGET, DEFAULT_TWIN
from speculation.acceptance.strategies import common_prefix

DRAFTERS = {"small": DEFAULT_DRAFT, "twin": DEFAULT_TWIN}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=("default", "padded"), default="default")
    parser.add_argument("--step-ms", type=float, default=40.0)
    parser.add_argument("--here", choices=DRAFTERS, default="twin", help="drafts on the drafter's side")
    parser.add_argument("--there", choices=DRAFTERS, default="twin", help="drafts on the verifier's side")
    parser.add_argument("--rtt-ms", type=float, nargs="+", default=[0.2, 50.0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--lengths", default="1-8")
    parser.add_argument("--checks", type=int, default=8)
    parser.add_argument("--check-tokens", type=int, default=160)
    parser.add_argument("--change-tokens", type=int, default=1200)
    parser.add_argument("--alike", type=float, default=0.05)
    add_save(parser)
    options = parser.parse_args()
    need("matplotlib")
    name = f"modes_{options.target}"
    report = Report("modes", options, name)
    target = DEFAULT_TARGET if options.target == "default" else padded_target(options.step_ms)
    with verifier(
        model=target, threads=1, rows=4, context=2048, draft_model=DRAFTERS[options.there], draft_threads=1
    ) as server:
        for rtt in options.rtt_ms:
            with relay(server.url, Link(rtt_ms=rtt)) as url:
                picture = report.beside(f"_{rtt:g}ms.png")
                compared = _compare(url, options, picture)
                rates = _check(url, options)
            _tell(report, rtt, compared, rates, options.alike)
        if len(options.rtt_ms) > 1:
            _change(report, server.url, options)
    report.save()


def _compare(url: str, options: argparse.Namespace, picture: Path) -> Any:
    """What `drafter compare --json` says."""
    command = ["-m", "drafter_client", "compare", "--verifier", url, "--threads", "1", "--json"]
    command += ["--draft-model", str(DRAFTERS[options.here]), "--runs", str(options.runs), "--lengths", options.lengths]
    command += ["--max-tokens", str(options.tokens), "--png", str(picture), "--seed", "1"]
    return json.loads(output(*command))


def _check(url: str, options: argparse.Namespace) -> dict[str, float]:
    """Tokens per second in each mode, over texts of which `compare` has seen none."""
    seconds: dict[str, float] = defaultdict(float)
    tokens: dict[str, int] = defaultdict(int)
    draft = DraftModel(DRAFTERS[options.here], engine=LoadOptions(threads=1))
    with Pair(url, draft) as pair:
        ways = [Way(str(mode), mode) for mode in pair.modes]
        for number, prompt in enumerate(held_out_prompts(options.checks)):
            for way in shuffled(ways, 0, number):
                temperature = 1.0 if number % 2 else 0.0
                chosen = Options(
                    max_tokens=options.check_tokens, mode=way.mode, temperature=temperature, seed=1000 + number
                )
                stats = pair.generate(prompt, chosen).read().stats
                seconds[way.name] += stats.total_ms / 1e3
                tokens[way.name] += stats.generated_tokens
    return {name: tokens[name] / seconds[name] for name in seconds}


def _change(report: Report, url: str, options: argparse.Namespace) -> None:
    """One text in mode `auto`, in the middle of which the link becomes another."""
    draft = DraftModel(DRAFTERS[options.here], engine=LoadOptions(threads=1))
    first, second = options.rtt_ms[:2]
    with ExitStack() as link:
        there = link.enter_context(relay(url, Link(rtt_ms=first)))
        with Pair(there, draft) as pair:
            chosen = Options(max_tokens=options.change_tokens, mode=Mode.AUTO, seed=5)
            generation = pair.generate(held_out_prompts(1)[0], chosen)
            written, settled = 0, None
            for event in generation:
                if isinstance(event, Tokens):
                    written += len(event.tokens)
                if settled is None and written >= options.change_tokens / 2:
                    settled = pair.fastest
                    link.close()  # cuts all connections, as when one leaves the house with a laptop
                    link.enter_context(relay(url, Link(rtt_ms=second), port=urlsplit(there).port or 0))
            stats, fastest = generation.stats, pair.fastest
            alone = pair.generate(generation.prompt_ids, replace(generation.options, mode=Mode.TARGET)).read()
    turns = ", ".join(f"{turn.mode} {turn.tokens}" for turn in stats.turns)
    report.line(f"\nround trip {first:g} ms, from token {options.change_tokens // 2} on {second:g} ms, connections cut")
    report.line(f"  auto: {settled}, then {fastest}; stretches in tokens: {turns}")
    report.line(f"  at last: {stats.why}")
    alike = common_prefix(stats.token_ids, alone.token_ids)
    rest = "" if alike == len(alone.token_ids) else ", then another after a near-tie"
    report.line(f"  text: the target's own for {alike} tokens{rest}")


def _tell(report: Report, rtt: float, compared: Any, rates: dict[str, float], alike: float) -> None:
    best = max(rates.values())
    right = [mode for mode, rate in rates.items() if rate > best / (1 + alike)]
    report.line(f"\nround trip {rtt:g} ms (measured {compared['round_trip_ms']:.1f})")
    for table in compared["tables"]:
        report.line(f"  {table['kind']}: {table['texts']} texts each; ways, tokens/s, times the target, acceptance")
        for row in table["rows"]:
            stood = "" if row["acceptance"] is None else f"{row['acceptance']:5.0%}"
            report.line(f"    {row['way']:<12}{row['rate']:8.1f}  {row['ratio']:.2f}  {stood}")
        clear = "" if table["clear"] else ", too close to call"
        report.line(f"    best: {table['best']}, in {table['won']} of {table['texts']} before {table['second']}{clear}")
    found = _mode_of(compared["tables"][-1]["best"])
    took = compared["auto"]["took"]
    report.line("  checked: " + ", ".join(f"{mode} {rate:.1f}" for mode, rate in rates.items()) + " tokens/s")
    report.line(f"  right: {' or '.join(right)}. compare: {found}. auto: {took} ({compared['auto']['why']})")
    report.line(
        f"  compare is {'right' if found in right else 'WRONG'}, auto is {'right' if took in right else 'WRONG'}"
    )


def _mode_of(way: str) -> Mode:
    return Mode(way.partition(" ")[0])


if __name__ == "__main__":
    main()
