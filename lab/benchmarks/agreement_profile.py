"""Measures a profile: how often a draft model's tokens equal the target's, by kind of text and position in the draft.

Method. The target writes up to `--tokens` tokens at temperature 0 behind each prompt of `lab.benchmarks.harness.kinds`;
a model without a chat template has the held-out Python files that the default pair was not trained on. A draft token is
judged when all before it in its draft are accepted, so its draft model has read the target's own text up to there.
Therefore one reading of a finished text by the draft model has the choice of every draft of that text. The drafts are
those of a drafter that waits for each reply: `--length` tokens, then the target's own token, then the next draft.

The profile is written as JSON, for `agreement` in the file of a simulation. It goes to `.cache/results/`, and with
`--save` to the folder of those that ship.

    python -m lab.benchmarks.agreement_profile [--target TARGET.gguf --draft DRAFT.gguf --name NAME] [--save]
"""

import json
import re
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from backends.registry import load
from gateway.openai_api.chat.template import Renderer
from lab.benchmarks.harness.kinds import CONTEXT, MOST_TOGETHER, prompts_by_kind, written
from lab.benchmarks.harness.report import UNSAVED, Report, options_of
from lab.benchmarks.real_pair.recording import RecordedText, choices_of
from lab.simulator.virtual import agreement
from lab.simulator.virtual.agreement import Counts, ProfileFile
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.engines.backend import Backend
from specpair.engines.load_options import LoadOptions
from specpair.speculation.sampling.sampling import Sampling

FLAGS = {
    "target": {"help": "GGUF file (default: of the pair that ships)"},
    "draft": {"help": "GGUF file (default: of the pair that ships)"},
    "name": {"default": "stdlib", "help": "of the profile (default: %(default)s)"},
    "texts": {"default": 16, "help": "of each kind, at most (default: %(default)s)"},
    "tokens": {"default": 192, "help": "of each text, at most (default: %(default)s)"},
    "length": {"default": 16, "help": "draft tokens (default: %(default)s)"},
}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("agreement_profile", options, f"agreement_profile_{options.name}")
    target_path, draft_path = Path(options.target or DEFAULT_TARGET), Path(options.draft or DEFAULT_DRAFT)
    kinds: dict[str, Counts] = {}
    with (
        closing(_load(target_path)) as target,
        closing(_load(draft_path)) as draft,
        closing(Renderer()) as renderer,
    ):
        below = min(target.vocabulary.size, draft.vocabulary.size)
        if draft.vocabulary.fingerprint_below(below) != target.vocabulary.fingerprint_below(below):
            raise SystemExit("the two models have different vocabularies")
        for kind, prompts in prompts_by_kind(target, renderer, options.texts):
            judged, accepted = [0] * options.length, [0] * options.length
            for prompt, tokens in zip(prompts, written(target, prompts, options.tokens), strict=True):
                text = RecordedText(kind, prompt, Sampling(), tokens)
                _count(choices_of(draft, text).agrees, judged, accepted)
            positions = sum(count > 0 for count in judged)
            kinds[kind] = Counts(judged=judged[:positions], accepted=accepted[:positions])
            share = sum(accepted) / sum(judged)
            report.line(f"{kind:12}{len(prompts):3} texts, {sum(judged):5} draft tokens judged, {share:.3f} accepted")
    report.line("", "share of accepted draft tokens by position, those before it accepted")
    for kind, counts in kinds.items():
        report.line(
            f"{kind:12}" + " ".join(f"{a / b:.3f}" for a, b in zip(counts.accepted, counts.judged, strict=True))
        )
    report.save()
    write_profile(
        options, ProfileFile(target=target_path.stem, draft=draft_path.stem, measured=report.head, kinds=kinds)
    )


def _load(path: Path) -> Backend:
    return load("llama_cpp", LoadOptions(model=path, context_length=CONTEXT, slots=MOST_TOGETHER))


def _count(agrees: Sequence[bool], judged: list[int], accepted: list[int]) -> None:
    """Count what is judged, by position, of drafts of `len(judged)` tokens. The first token of a text comes with the
    prompt's reply, without a draft."""
    at = 1
    while at < len(agrees):
        draft = agrees[at : at + len(judged)]
        kept = draft.index(False) if False in draft else len(draft)
        for position in range(min(kept + 1, len(draft))):
            judged[position] += 1
            accepted[position] += position < kept
        at += kept + 1


def write_profile(options: Any, profile: ProfileFile) -> None:
    """Write the profile `options.name`: with `options.save` to those that ship, else to the unsaved results."""
    folder = Path(agreement.__file__).with_name("profiles") if options.save else UNSAVED
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{options.name}.json"
    text = json.dumps(profile.model_dump(), indent=1)
    text = re.sub(r"\[[\d,\s]+\]", lambda numbers: " ".join(numbers[0].split()), text)  # a list takes a line
    path.write_text(text + "\n", encoding="utf-8")
    print(f"written to {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
