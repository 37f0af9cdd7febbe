"""Whether `drafter compare` finds the fastest mode over a short and a long link, and whether mode `auto` takes it.

Method. A verifier process serves `--target` (the one that ships, or one padded until a step takes `--step-ms` here) and
the draft model of mode fused, one thread at each end, behind a relay with one of `--rtt-ms`. `drafter compare` runs as
a user would run it. Apart from it, `--checks` held-out texts with other seeds are written in each mode by turns: right
is the mode that took the least time, or one within `--alike` of it. At last one text in mode `auto` has the first link
and, from its middle on, the second. Rates count prompts.

    python -m lab.benchmarks.modes [--target default|padded] [--rtt-ms 0.2 50] [--runs 3]
"""

import argparse
import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from drafter_client import DraftModel, LoadOptions, Mode, Options, Pair, Tokens
from lab.benchmarks.harness.models import DRAFTERS, held_out_prompts
from lab.benchmarks.harness.relay import relay
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Written, by_library, by_turns, whole_rate
from lab.simulator.paced.padded_target import padded_target
from models import DEFAULT_TARGET
from specpair.child_processes.children import output
from specpair.child_processes.serving import verifier
from specpair.speculation.acceptance.strategies import common_prefix

FLAGS = {
    "target": {"choices": ("default", "padded"), "default": "default"},
    "step-ms": 40.0,
    "here": {"choices": DRAFTERS, "default": "twin", "help": "drafts on the drafter's side"},
    "there": {"choices": DRAFTERS, "default": "twin", "help": "drafts on the verifier's side"},
    **{"rtt-ms": [0.2, 50.0], "runs": 3, "tokens": 96, "lengths": "1-8", "checks": 8, "check-tokens": 160},
    **{"change-tokens": 1200, "alike": 0.05},
}


def main() -> None:
    options = options_of(__doc__, FLAGS, "matplotlib")
    report = Report("modes", options, f"modes_{options.target}")
    target = DEFAULT_TARGET if options.target == "default" else padded_target(options.step_ms)
    drafts: dict[str, Any] = {"draft_model": DRAFTERS[options.there], "draft_threads": 1}
    with verifier(model=target, threads=1, slots=4, context=2048, **drafts) as server:
        for rtt in options.rtt_ms:
            with relay(server.url, rtt) as url:
                compared = _compare(url, options, report.beside(f"_{rtt:g}ms.png"))
                rates = _check(url, options)
            _tell(report, rtt, compared, rates, options.alike)
        if len(options.rtt_ms) > 1:
            _change(report, server.url, options)
    report.save()


def _draft(options: argparse.Namespace) -> DraftModel:
    return DraftModel(DRAFTERS[options.here], engine=LoadOptions(threads=1))


def _compare(url: str, options: argparse.Namespace, picture: Path) -> Any:
    """What `drafter compare --json` prints."""
    command = ["-m", "drafter_client", "compare", "--verifier", url, "--threads", "1", "--json"]
    command += ["--draft-model", str(DRAFTERS[options.here]), "--runs", str(options.runs), "--lengths", options.lengths]
    command += ["--max-tokens", str(options.tokens), "--png", str(picture), "--seed", "1"]
    return json.loads(output(*command))


def _check(url: str, options: argparse.Namespace) -> dict[str, float]:
    """Tokens per second in each mode, over texts that `compare` has not seen."""
    with Pair(url, _draft(options)) as pair:

        def write(mode: Mode, prompt: str, number: int) -> Written:
            chosen = Options(max_tokens=options.check_tokens, temperature=number % 2, seed=1000 + number, mode=mode)
            return by_library(pair, prompt, chosen)

        ways = {str(mode): partial(write, mode) for mode in pair.modes}
        return {mode: whole_rate(texts) for mode, texts in by_turns(ways, held_out_prompts(options.checks)).items()}


def _change(report: Report, url: str, options: argparse.Namespace) -> None:
    """One text in mode `auto`, whose link changes in its middle."""
    first, second = options.rtt_ms[:2]
    with ExitStack() as link:
        there = link.enter_context(relay(url, first))
        with Pair(there, _draft(options)) as pair:
            chosen = Options(max_tokens=options.change_tokens, mode=Mode.AUTO, seed=5)
            generation = pair.generate(held_out_prompts(1)[0], chosen.cold())
            written, settled = 0, None
            for event in generation:
                if isinstance(event, Tokens):
                    written += len(event.tokens)
                if settled is None and written >= options.change_tokens / 2:
                    settled = pair.fastest
                    link.close()  # cuts all connections, as when a laptop leaves the house
                    link.enter_context(relay(url, second, port=urlsplit(there).port or 0))
            stats, fastest = generation.stats, pair.fastest
            alone = pair.generate(generation.prompt_ids, generation.options.in_mode(Mode.TARGET).cold()).read()
    turns = ", ".join(f"{turn.mode} {turn.tokens}" for turn in stats.turns)
    same = common_prefix(stats.token_ids, alone.token_ids)
    rest = "" if same == len(alone.token_ids) else ", then another after a near-tie"
    report.line(f"\nround trip {first:g} ms, from token {options.change_tokens // 2} on {second:g} ms, connections cut")
    report.line(f"  auto: {settled}, then {fastest}; stretches in tokens: {turns}")
    report.line(f"  at last: {stats.why}")
    report.line(f"  text: the target's own for {same} tokens{rest}")


def _tell(report: Report, rtt: float, compared: Any, rates: dict[str, float], alike: float) -> None:
    best = max(rates.values())
    right = [mode for mode, rate in rates.items() if rate > best / (1 + alike)]
    report.line(f"\nround trip {rtt:g} ms (measured {compared['round_trip_ms']:.1f})")
    for table in compared["tables"]:
        report.line(f"  {table['kind']}: {table['texts']} texts each; ways, tokens/s, times the target, acceptance")
        for row in table["rows"]:
            accepted = "" if row["acceptance"] is None else f"{row['acceptance']:5.0%}"
            report.line(f"    {row['way']:<12}{row['rate']:8.1f}  {row['ratio']:.2f}  {accepted}")
        clear = "" if table["clear"] else ", too close to call"
        report.line(f"    best: {table['best']}, in {table['won']} of {table['texts']} before {table['second']}{clear}")
    found = Mode(compared["tables"][-1]["best"].partition(" ")[0])
    took = compared["auto"]["took"]
    report.line("  checked: " + ", ".join(f"{mode} {rate:.1f}" for mode, rate in rates.items()) + " tokens/s")
    report.line(f"  right: {' or '.join(right)}. compare: {found}. auto: {took} ({compared['auto']['why']})")
    found_right, took_right = ("right" if mode in right else "WRONG" for mode in (found, took))
    report.line(f"  compare is {found_right}, auto is {took_right}")


if __name__ == "__main__":
    main()
