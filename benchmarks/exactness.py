"""How many texts at temperature 0 differ from the target's own where draft tokens are judged, and by how much.

Method. The target continues held-out prompts alone, a token a pass. Then it reads each prompt again and judges drafts
of 1 to 7 tokens, by turns. A draft is the own text with its last token replaced, so that each pass rolls back: nothing
but the width of passes can change the text. At last it writes alone once more, over the keys and values of the prompt
that the first text has left, all but those of its last token. Printed for each file with `deterministic` off and on:
how many texts of each kind differ, and the gaps in nats, in the own text, between the tokens where they first do.

    python -m benchmarks.exactness --target Q4.gguf BF16.gguf [--prompts 18] [--tokens 96] [--threads 2]
"""

from collections.abc import Sequence
from contextlib import closing
from itertools import cycle
from pathlib import Path

import numpy as np

from backends.base import Backend, Entry, LoadOptions, Logits
from backends.registry import load
from benchmarks.harness.models import held_out_prompts
from benchmarks.harness.report import Report, options_of
from models import DEFAULT_TARGET

DRAFTS = (4, 1, 7, 2, 5, 3, 6)  # draft tokens of a pass, by turns


def main() -> None:
    options = options_of(
        __doc__,
        {
            "target": {"default": [str(DEFAULT_TARGET)], "help": "GGUF files (default: the target that ships)"},
            "prompts": {"default": 18, "help": "texts, at most 18 (default: %(default)s)"},
            "from": {"default": 0, "help": "leave out the first so many prompts (default: %(default)s)"},
            "tokens": {"default": 96, "help": "of each text (default: %(default)s)"},
            "threads": {"default": 2, "help": "of a pass (default: %(default)s)"},
            "setting": {"default": ["default", "deterministic"], "help": "those to measure (default: both)"},
        },
        "llama_cpp",
    )
    report = Report("exactness", options)
    report.line(f"{'target':36} {'setting':14} {'text':12} texts  differ  gaps in nats")
    prompts = held_out_prompts(options.prompts)[vars(options)["from"] :]
    for path in map(Path, options.target):
        for setting in options.setting:
            deterministic = setting == "deterministic"
            how = LoadOptions(path, 2, 1024, threads=options.threads, deterministic=deterministic)
            with closing(load("llama_cpp", how)) as backend:
                found = [gaps(backend, backend.vocabulary.encode(text), options.tokens) for text in prompts]
            for kind, each in zip(("with drafts", "kept prompt"), zip(*found, strict=True), strict=True):
                differ = sorted(gap for gap in each if gap is not None)
                shown = ", ".join(f"{gap:.3f}" for gap in differ)
                report.line(f"{path.stem:36} {setting:14} {kind:12} {len(each):5}  {len(differ):6}  {shown}")
    report.save()


def gaps(backend: Backend, prompt: Sequence[int], count: int) -> tuple[float | None, float | None]:
    """How far apart, in nats, two tokens are in the own text where another one first differs from it.

    The other one is the text with drafts, then the text over a kept prompt. `count`: tokens of each text. None: the
    texts are equal. Uses slots 0 and 1, and leaves them empty.
    """
    rows = _own(backend, prompt, count)
    own = [int(row.argmax()) for row in rows]
    kept_differs = _over_kept_prompt(backend, prompt, own)
    backend.release(1)  # else the next text would lie in other cells
    drafts_differ = _with_drafts(backend, prompt, own)
    backend.release(0)
    both = drafts_differ, kept_differs
    drafts, kept = (None if each is None else float(rows[each[0]].max() - rows[each[0]][each[1]]) for each in both)
    return drafts, kept


def _own(backend: Backend, prompt: Sequence[int], count: int) -> list[Logits]:
    """The logits of each token of the text that the target writes alone, over any end."""
    rows = [_read(backend, prompt)]
    while len(rows) < count:
        position = len(prompt) + len(rows) - 1
        rows.append(backend.extend([Entry(0, position, [int(rows[-1].argmax())], 0)])[0][0].copy())
    return rows


def _read(backend: Backend, prompt: Sequence[int]) -> Logits:
    backend.release(0)
    [[row]] = backend.extend([Entry(0, 0, prompt, len(prompt) - 1)])
    return np.array(row)


def _with_drafts(backend: Backend, prompt: Sequence[int], own: Sequence[int]) -> tuple[int, int] | None:
    """Where the text with drafts first differs from `own`, and its token there."""
    if (first := int(_read(backend, prompt).argmax())) != own[0]:
        return 0, first
    known, lengths = 1, cycle(DRAFTS)  # `known`: tokens of the text so far, all as in `own`
    while known < len(own):
        draft = list(own[known : known + next(lengths)])
        draft[-1] = (draft[-1] + 1) % backend.vocabulary.size
        rows: Logits = backend.extend([Entry(0, len(prompt) + known - 1, [own[known - 1], *draft], 0)])[0]
        chosen = np.argmax(rows[: len(draft)], axis=1)  # the row behind a rejected token says nothing
        for at, token in enumerate(map(int, chosen), start=known):
            if token != own[at]:
                return at, token
        known += len(draft)
    return None


def _over_kept_prompt(backend: Backend, prompt: Sequence[int], own: Sequence[int]) -> tuple[int, int] | None:
    """The same for a text of slot 1 over the prompt that slot 0 holds."""
    backend.copy(0, 1, len(prompt) - 1)
    for at, before in enumerate([prompt[-1], *own[:-1]]):
        token = int(backend.extend([Entry(1, len(prompt) - 1 + at, [before], 0)])[0][0].argmax())
        if token != own[at]:
            return at, token
    return None


if __name__ == "__main__":
    main()
