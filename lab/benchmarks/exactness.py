"""Counts texts at temperature 0 that differ from the target-only text when drafts are judged, and by how much.

Method. The target continues held-out prompts alone, a token a pass. Then it reads each prompt again and judges drafts
of 1 to 7 tokens, by turns. A draft is the own text with its last token replaced, so that each pass rolls back: nothing
but the width of passes can change the text. With longer prompts, it writes alone once more over what the first text
has left of the prompt, as far as a verifier uses it again: in the same slot, or in another one with a copy. Printed for
each file with `deterministic` off and on: how many texts of each kind differ, and the gaps in nats, in the own text,
between the tokens where they first do.

    python -m lab.benchmarks.exactness --target Q4.gguf BF16.gguf [--prompts 18] [--tokens 96] [--threads 2]
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import cycle
from pathlib import Path

import numpy as np

from backends.registry import load
from lab.benchmarks.harness.models import held_out_prompts
from lab.benchmarks.harness.report import Report, options_of
from models import DEFAULT_TARGET
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.kept_texts import reusable
from specpair.engines.load_options import LoadOptions
from specpair.engines.prompt_passes import Reading, prompt_pass

DRAFTS = (4, 1, 7, 2, 5, 3, 6)  # draft tokens of a pass, by turns
Difference = tuple[int, int] | None  # where a text first differs from another one, and its token there


def main() -> None:
    options = options_of(
        __doc__,
        {
            "target": {"default": [str(DEFAULT_TARGET)], "help": "GGUF files (default: the target that ships)"},
            "prompts": {"default": 18, "help": "texts, at most 18 (default: %(default)s)"},
            "tokens": {"default": 96, "help": "of each text (default: %(default)s)"},
            "threads": {"default": 2, "help": "of a pass (default: %(default)s)"},
            "kind": {"default": ["drafts", "kept", "copied"], "help": "texts to compare (default: all)"},
            "setting": {"default": ["default", "deterministic"], "help": "settings to measure (default: both)"},
        },
        "llama_cpp",
    )
    report = Report("exactness", options)
    report.line(f"{'target':36} {'setting':14} {'text':12} texts  differ  gaps in nats")
    # How the other text is written, and the lines of its prompts.
    kinds = {"drafts": (with_drafts, 4), "kept": (over_kept_prompt, 28), "copied": (over_copy, 28)}
    for path in map(Path, options.target):
        for setting in options.setting:
            deterministic = setting == "deterministic"
            how = LoadOptions(path, 2, 1024, threads=options.threads, deterministic=deterministic)
            with closing(load("llama_cpp", how)) as backend:
                for kind in options.kind:
                    other, lines = kinds[kind]
                    prompts = held_out_prompts(options.prompts, lines)
                    each = [gap(backend, backend.vocabulary.encode(text), options.tokens, other) for text in prompts]
                    differ = sorted(found for found in each if found is not None)
                    shown = ", ".join(f"{found:.3f}" for found in differ)
                    report.line(f"{path.stem:36} {setting:14} {kind:12} {len(each):5}  {len(differ):6}  {shown}")
    report.save()


def gap(
    backend: Backend,
    prompt: Sequence[int],
    count: int,
    other: Callable[[Backend, Sequence[int], Sequence[int]], Difference],
) -> float | None:
    """The gap, in nats, between the two tokens at the first difference of the target-only text and the `other` text.

    None: the texts are equal. Uses slots 0 and 1, and leaves them empty.
    """
    rows = _target_logits(backend, prompt, count)
    difference = other(backend, prompt, [int(row.argmax()) for row in rows])
    for slot in (0, 1):
        backend.release(slot)
    return None if difference is None else float(rows[difference[0]].max() - rows[difference[0]][difference[1]])


def _target_logits(backend: Backend, prompt: Sequence[int], count: int) -> list[Logits]:
    """The logits of each token of the target-only text, past any end token."""
    rows = [_read(backend, 0, prompt, 0)]
    while len(rows) < count:
        position = len(prompt) + len(rows) - 1
        rows.append(backend.extend([Entry(0, position, [int(rows[-1].argmax())], 0)])[0][0].copy())
    return rows


def _read(backend: Backend, slot: int, prompt: Sequence[int], held: int) -> Logits:
    """The logits behind a prompt, read in a verifier's passes. `held`: tokens of it that the slot holds."""
    if not held:
        backend.release(slot)
    end, most = len(prompt), backend.max_batch_tokens
    while (fed := min(end - held, prompt_pass(backend, held, end, end - held, most))) < end - held:
        backend.extend([Entry(slot, held, prompt[held : held + fed], fed)])
        held += fed
    [[row]] = backend.extend([Entry(slot, held, prompt[held:], fed - 1)])
    return np.array(row)


def with_drafts(backend: Backend, prompt: Sequence[int], own: Sequence[int]) -> Difference:
    """The position where the text with drafts first differs from `own`, and its token there."""
    if (first := int(_read(backend, 0, prompt, 0).argmax())) != own[0]:
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


def over_kept_prompt(backend: Backend, prompt: Sequence[int], own: Sequence[int]) -> Difference:
    """The same for a text over what slot 0 holds of the prompt."""
    return _over(backend, 0, prompt, own)


def over_copy(backend: Backend, prompt: Sequence[int], own: Sequence[int]) -> Difference:
    """The same for a text of slot 1, over a copy of what slot 0 holds of the prompt."""
    backend.copy(0, 1, _reused(backend, prompt))
    return _over(backend, 1, prompt, own)


def _reused(backend: Backend, prompt: Sequence[int]) -> int:
    return reusable(backend, 0, prompt, len(prompt), [Reading(0, len(prompt))], prompt, 0)


def _over(backend: Backend, slot: int, prompt: Sequence[int], own: Sequence[int]) -> Difference:
    row = _read(backend, slot, prompt, _reused(backend, prompt))
    for at, expected in enumerate(own):
        if (token := int(row.argmax())) != expected:
            return at, token
        [[row]] = backend.extend([Entry(slot, len(prompt) + at, [token], 0)])
    return None


if __name__ == "__main__":
    main()
