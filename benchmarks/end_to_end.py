"""Tokens per second of the default pair with real compute: fixed draft lengths, automatic ones, and the target alone.

Method. A verifier process, one thread, serves the default target padded until a step takes `--step-ms` here (or
`--target`); this process drafts, one thread, over loopback HTTP. Prompts are four lines of source that the pair was not
trained on; one seed a prompt. For each drafter and temperature every prompt is written in turn by the pair in lockstep
with each of `--lengths`, in lockstep with as many drafts as pay (`lockstep`), as users get it (`auto`), and by the
target alone (`/generate`, streamed by the same server): a slow moment of the machine falls on all alike. Each text
begins knowing what the verifier says its passes cost, and nothing of the text or the drafter. A rate is all tokens over
all seconds, prompts included; the multiple is of the target's. The range is that multiple's smallest and largest over
`--repeats` passes. What a pass costs by its tokens is measured first, in a process with nothing else to do.

    python -m benchmarks.end_to_end [--tokens 128] [--prompts 4] [--repeats 2]
    python -m benchmarks.end_to_end --drafters twin --temperatures 0 --lengths 3 5 7 --skip 6 --prompts 12  # a part
"""

import argparse
import sys
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.harness.models import CONTEXT, DRAFTERS, held_out_prompts, load_drafter, padded_target, step_ms
from benchmarks.harness.report import Report, options_of
from benchmarks.harness.serving import verifier
from benchmarks.harness.texts import Written, alone, paired, whole_rate
from drafter_client.cli.program import SWITCH_INTERVAL
from drafter_client.http.client import VerifierClient
from drafters.draft_model import ModelDrafter
from speculation.policy.schedule import LOCKSTEP, Mechanisms
from speculation.sampling.sampling import Sampling

PARTS = {
    "skip": {"default": 0, "help": "prompts to leave out at the beginning"},
    "drafters": {"default": list(DRAFTERS), "choices": DRAFTERS},
    "temperatures": [0.0, 0.8],
    "lengths": {"default": list(range(1, 9)), "help": "fixed draft lengths"},
}
FLAGS = {
    **{"tokens": 128, "prompts": 4, "repeats": 2, "step-ms": 30.0},
    "target": {"type": Path, "help": "a padded target of your own making"},
    **PARTS,
}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    defaults = {name: given["default"] if isinstance(given, dict) else given for name, given in PARTS.items()}
    partly = any(getattr(options, name) != default for name, default in defaults.items())
    report = Report("end_to_end", options, "end_to_end_part" if partly else "end_to_end")
    sys.setswitchinterval(SWITCH_INTERVAL)
    target = options.target or padded_target(options.step_ms)
    for name, in_turn in (("same width again", False), ("another width each time", True)):
        curve = step_ms(target, widths=range(1, 10), in_turn=in_turn)
        costs = "  ".join(f"{width}: {ms:.1f}" for width, ms in curve.items())
        report.line(f"verify cost, ms by tokens in the pass, {name}: {costs}")
    with (
        verifier(model=target, threads=1, rows=2, context=CONTEXT) as server,
        closing(VerifierClient(server.url)) as client,
    ):
        client.wait_until_ready()
        for drafter in options.drafters:
            for temperature in options.temperatures:
                _compare(report, client, DRAFTERS[drafter], temperature, options)
    report.save()


def _compare(
    report: Report, client: VerifierClient, model: Path, temperature: float, options: argparse.Namespace
) -> None:
    """One drafter at one temperature: all draft lengths against the target alone."""
    ways: dict[str, dict[str, Any]] = {f"k={k}": {"length": k, "mechanisms": LOCKSTEP} for k in options.lengths}
    ways |= {"lockstep": {"mechanisms": LOCKSTEP}, "auto": {"mechanisms": Mechanisms()}}
    written: dict[str, list[list[Written]]] = defaultdict(list)  # by way, then by repeat
    with closing(load_drafter(model)) as backend:
        info = client.check_vocabulary(backend.vocabulary, backend.model_name)
        for repeat in range(options.repeats):
            for way in (*ways, "target"):
                written[way].append([])
            for at, prompt in enumerate(held_out_prompts(options.skip + options.prompts)[options.skip :]):
                sampling = Sampling(seed=1000 * repeat + at, temperature=temperature)
                request = {"max_tokens": options.tokens, "temperature": temperature, "seed": sampling.seed}
                ids = backend.vocabulary.encode(prompt)
                for way, how in ways.items():
                    drafter = ModelDrafter(backend, sampling, info.vocabulary.size)
                    written[way][-1].append(paired(client, drafter, ids, request, info, **how))
                written["target"][-1].append(alone(client, ids, request))
    texts = {way: [text for repeat in repeats for text in repeat] for way, repeats in written.items()}
    rates = {way: whole_rate(each) for way, each in texts.items()}
    report.line(f"\n{backend.model_name}, temperature {temperature}; target alone {rates['target']:.1f} tokens/s")
    for way in ways:
        both = zip(written[way], written["target"], strict=True)
        ratios = [whole_rate(ours) / whole_rate(targets) for ours, targets in both]
        sums = [sum(getattr(text.stats, name) for text in texts[way]) for name in ("rounds", "drafted", "accepted")]
        rounds, drafted, accepted = max(1, sums[0]), sums[1], sums[2]
        report.line(
            f"  {way:>8}  {rates[way]:6.1f} tokens/s  {rates[way] / rates['target']:.2f}x"
            f"  ({min(ratios):.2f} … {max(ratios):.2f})  acceptance {accepted / max(1, drafted):.2f}"
            f"  tokens a round {1 + accepted / rounds:.2f}  drafted a round {drafted / rounds:.2f}"
        )
    best = max((f"k={k}" for k in options.lengths), key=rates.__getitem__)
    first = [text.tokens for text in texts[next(iter(ways))]]
    differing = sum(a.tokens != b for each in texts.values() for a, b in zip(each, first, strict=True))
    report.line(
        f"  of the best fixed ({best}): lockstep {rates['lockstep'] / rates[best]:.3f}, "
        f"auto {rates['auto'] / rates[best]:.3f}; texts that differ: {differing}"
    )


if __name__ == "__main__":
    main()
