"""How many draft tokens of its head a model accepts at temperature 0, on llama.cpp.

Method. The prompts are the first `--length` tokens of the files that the shipped models were not trained on
(`models.training.corpus.HELD_OUT`). The model continues each by `--tokens` tokens, in rounds: the head drafts k tokens,
one pass of the target verifies them. Printed for each k in `--drafts`: the acceptance rate, the mean acceptance length,
the share of rounds that accept the first 1, 2, … draft tokens, and how many texts equal the target's own. The rounds
with the most draft tokens become a profile, which `agreement` of the simulator's key `head` names.

    python -m lab.benchmarks.head_acceptance [--model MODEL.gguf] [--drafts 1 2 3]
"""

import sysconfig
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from lab.benchmarks.agreement_profile import write_profile
from lab.benchmarks.harness.report import Report, options_of
from lab.simulator.virtual.agreement import Counts, ProfileFile
from models.heads import make_head_model
from models.training.corpus import HELD_OUT
from specpair.engines.backend import Backend, Entry, HeadEntry
from specpair.engines.load_options import HEAD, LoadOptions

FLAGS = {
    "model": {"metavar": "FILE", "help": "a GGUF file with a head (default: the default target with its head)"},
    "drafts": [1, 2, 3],
    "name": {"default": "stdlib-head", "help": "of the profile (default: %(default)s)"},
    **{"length": 60, "tokens": 100, "threads": 1},
}


class HeadRounds(NamedTuple):
    """One text: its ids; of each round the draft tokens, and how many of them the target accepted."""

    text: list[int]
    drafts: list[list[int]]
    accepted: list[int]


def generated(backend: Backend, prompt: Sequence[int], drafted: int, tokens: int) -> HeadRounds:
    """Continue the prompt by `tokens` tokens, with `drafted` draft tokens of the head a round; 0: no head."""
    rows = backend.extend([Entry(0, 0, list(prompt), len(prompt) - 1)])[0]
    text, found = [*prompt, int(rows[0].argmax())], HeadRounds([], [], [])
    while len(text) - len(prompt) < tokens:
        start, draft = len(text) - 1, list[int]()
        while len(draft) < drafted:
            row = backend.extend_head([HeadEntry(0, start, [text[-1], *draft])])[0]
            draft.append(int(row.argmax()))
        picks = backend.extend([Entry(0, start, [text[-1], *draft], 0)])[0].argmax(axis=1).tolist()
        accepted = next((at for at, token in enumerate(draft) if picks[at] != token), len(draft))
        found.drafts.append(draft)
        found.accepted.append(accepted)
        text += picks[: accepted + 1]
    return found._replace(text=text[len(prompt) : len(prompt) + tokens])


def held_out(backend: Backend, length: int) -> list[list[int]]:
    """The first `length` tokens of each held-out file that has so many."""
    library = Path(sysconfig.get_path("stdlib"))
    texts = (backend.vocabulary.encode((library / name).read_text(encoding="utf-8")) for name in sorted(HELD_OUT))
    return [ids[:length] for ids in texts if len(ids) >= length]


def main() -> None:
    """Run the experiment."""
    options = options_of(__doc__, FLAGS, "llama_cpp")
    from backends.llama_cpp.load import load  # only here, behind the check that it is installed

    with TemporaryDirectory() as folder:
        path = Path(options.model) if options.model else Path(folder) / "stdlib.gguf"
        if not options.model:
            make_head_model("stdlib", path)
        report, room = Report("head_acceptance", options), options.length + options.tokens + 64
        given = LoadOptions(model=path, head=HEAD, slots=1, context_length=room, threads=options.threads)
        with closing(load(given)) as backend:
            prompts = held_out(backend, options.length)
            plain = [generated(backend, prompt, 0, options.tokens).text for prompt in prompts]
            for drafted in options.drafts:
                texts = [generated(backend, prompt, drafted, options.tokens) for prompt in prompts]
                counts = np.array([count for text in texts for count in text.accepted])
                depths = " ".join(f"{np.mean(counts > depth):.2f}" for depth in range(drafted))
                same = sum(text.text == own for text, own in zip(texts, plain, strict=True))
                report.line(
                    f"k = {drafted}: acceptance rate {counts.mean() / drafted:.3f}, mean acceptance length"
                    f" {1 + counts.mean():.2f}, first tokens {depths}; {same} of {len(texts)} texts are the target's"
                )
                if drafted == max(options.drafts):
                    accepted = [int(np.sum(counts > depth)) for depth in range(drafted)]
                    profile = Counts(judged=[len(counts), *accepted[:-1]], accepted=accepted)
        report.save()
    write_profile(
        options, ProfileFile(target=path.stem, draft="its head", measured=report.head, kinds={"code": profile})
    )


if __name__ == "__main__":
    main()
