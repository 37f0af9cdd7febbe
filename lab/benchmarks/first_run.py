"""A new user's first text with both ends on this machine and no option set, against the target alone.

Method. A verifier with its defaults, apart from `--context`. Every text is a first run: a new pair with its defaults
(`drafter_client.options.DEFAULT_MODE`), which remembers nothing, writes one text of `--tokens` tokens at temperature 0.
The same verifier writes each text alone before and after it. The ratio is of whole texts, prompts included: tokens per
second over those of the two. Loading counts on neither side. Four kinds of prompts: code and stories to be continued,
questions in the model's chat template, and files to be written anew with a small change.

    python -m lab.benchmarks.first_run --target Q4.gguf BF16.gguf --draft SMALL.gguf [--texts 4] [--modes remote auto]
"""

import argparse
from dataclasses import replace
from pathlib import Path

from drafter_client import DraftModel, Mode, Options, Pair
from lab.benchmarks.harness.models import held_out_prompts
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Written, by_library, whole_rate
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.child_processes.serving import verifier
from specpair.numbers import quantile

DEFAULT = "default"
CODE, STORY, CHAT, EDIT = KINDS = "code", "story", "chat", "edit"
STORIES = (
    "The lighthouse keeper had not spoken to anyone in forty days when the boat",
    "On the morning that the river ran backwards, Ada was hanging out the washing and",
    "My grandfather kept three clocks in the hall, and none of them told the same time. The first",
    "Nobody in the village would say who had built the bridge, but everyone knew that",
    "The train stopped between two stations, and the lights went out. For a while",
    "It was the last apple on the tree, and the fox and the crow had both",
)
QUESTIONS = (
    "Why is the sky blue? Answer in one paragraph.",
    "Write a Python function that returns the median of a list of numbers, and explain it.",
    "What should I think about before I move to another country?",
    "Explain the difference between a process and a thread to a beginner.",
    "Give me a recipe for a simple bread.",
    "Write a shell script that renames all .jpeg files in a folder to .jpg.",
)
FLAGS = {
    "target": {"default": [str(DEFAULT_TARGET)], "help": "GGUF files (default: the target that ships)"},
    "draft": {"default": str(DEFAULT_DRAFT), "help": "the draft model (default: the small one that ships)"},
    "texts": {"default": 4, "help": "of each kind, at most 6 (default: %(default)s)"},
    "tokens": {"default": 128, "help": "of each text (default: %(default)s)"},
    "context": {"default": 2048, "help": "of both ends (default: %(default)s)"},
    "kinds": {"default": list(KINDS), "choices": KINDS, "help": "of prompts (default: all)"},
    "modes": {"default": [DEFAULT], "choices": [DEFAULT, *Mode], "help": "of the pair (default: its own default)"},
}


def main() -> None:
    options = options_of(__doc__, FLAGS, "llama_cpp")
    report = Report("first_run", options)
    for target in options.target:
        with verifier(model=target, context=options.context) as server:
            _measure(report, server.url, Path(target).stem, options)
    report.save()


def _measure(report: Report, url: str, name: str, options: argparse.Namespace) -> None:
    """Write all texts with one target, and report each ratio, then the ratios of each kind."""
    ratios: dict[tuple[str, str], list[float]] = {}
    with Pair(url, None) as alone:
        limit = Options(max_tokens=options.tokens, seed=0)
        target = replace(limit, mode=Mode.TARGET)
        by_library(alone, "x", target.cold())  # engines make ready what they need
        for kind in options.kinds:
            for number, prompt in enumerate(prompts_of(kind, alone, options.texts), 1):
                before = by_library(alone, prompt, target.cold())
                for mode in options.modes:
                    chosen = limit if mode == DEFAULT else replace(limit, mode=Mode(mode))
                    with Pair(url, DraftModel(options.draft)) as pair:
                        ours = by_library(pair, prompt, chosen.cold())
                    after = by_library(alone, prompt, target.cold())
                    ratio = whole_rate([ours]) / whole_rate([before, after])
                    ratios.setdefault((kind, mode), []).append(ratio)
                    report.line(f"{name} {mode:8} {kind:6}{number:2} {ratio:5.2f}  {_rates(ours, before, after)}")
                    before = after
    report.line("", f"{name}: times the target alone", "  mode     text      median  worst   best  texts")
    for (kind, mode), each in ratios.items():
        spread = f"{quantile(each, 0.5):6.2f} {min(each):6.2f} {max(each):6.2f}"
        report.line(f"  {mode:8} {kind:8} {spread} {len(each):6}")
    report.line("")


def _rates(ours: Written, *alone: Written) -> str:
    stats = ours.stats
    modes = ", ".join(f"{turn.mode} {turn.tokens}" for turn in stats.turns) or stats.mode
    drafts = f"{stats.accepted} of {stats.drafted} draft tokens accepted" if stats.drafted else "nothing drafted"
    rates = " and ".join(f"{whole_rate([each]):.1f}" for each in alone)
    same = "same text" if all(each.tokens == ours.tokens for each in alone) else "another text"
    return f"{whole_rate([ours]):.1f} tokens/s, alone {rates}; {modes}; {drafts}; {same}"


def prompts_of(kind: str, pair: Pair, count: int) -> list[list[int]]:
    """The token ids of `count` prompts of a kind."""
    match kind:
        case "code":
            return [pair.encode(text) for text in held_out_prompts(count)]
        case "story":
            return [pair.encode(text) for text in STORIES[:count]]
        case "chat":
            asked = QUESTIONS[:count]
        case _:
            files = held_out_prompts(count, 24)
            asked = tuple(f"Write this file again, with every name in capitals:\n\n{text}" for text in files)
    return [pair.chat(each) if pair.target.chat_template else pair.encode(each) for each in asked]


if __name__ == "__main__":
    main()
