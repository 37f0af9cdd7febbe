"""The settings of llama-server that are measured: what all share, and each way to speculate.

Names and defaults are those of `llama-server --help` at the commit that was compiled:

    --spec-draft-n-max      draft tokens at most (3)
    --spec-draft-p-min      a draft ends before a token that is less likely for the draft model (0; formerly 0.75)
    --spec-ngram-*-size-n   tokens that must have occurred before (12; ngram-mod: n-match, 24)
    --spec-ngram-*-size-m   draft tokens at most (48; ngram-mod: n-max, 64)

The defaults of the n-gram types are for long repetitions: such a draft needs 60 tokens of text before it. They get the
short ones of prompt lookup instead. `ngram-cache` has no settings but its files, and drafts 8 tokens at most. A type
before another in a list drafts first, and the other one where it finds nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ALONE = "llama-server alone"
_P_MIN, _LONG = 0.75, 4  # `--spec-draft-p-min` is measured with drafts of at least so many tokens
_N, _M = 3, 8  # tokens that must have occurred before, and draft tokens at most


class Setting(NamedTuple):
    """One way in which llama-server writes."""

    name: str
    kind: str  # "alone", "n-gram" or "draft model"
    flags: tuple[str, ...] = ()
    drafter: str | None = None  # name of the draft model; None: there is none

    @property
    def speculates(self) -> bool:
        return self.kind != "alone"


def shared_flags(target: Path, context: int, threads: int) -> list[str]:
    """What all servers get: the model, threads, context, number types and attention of our verifier."""
    number = str(threads)
    flags = ["--model", str(target), "--ctx-size", str(context), "--parallel", "1"]
    flags += ["--threads", number, "--threads-batch", number]
    flags += ["--flash-attn", "on", "--cache-type-k", "f16", "--cache-type-v", "f16"]
    # Nothing else takes time: no copies of earlier prompts, no search for what fits into memory, no log.
    return [*flags, "--cache-ram", "0", "--fit", "off", "--offline", "--no-ui", "--log-verbosity", "2"]


def settings(drafters: Mapping[str, Path], lengths: Iterable[int]) -> list[Setting]:
    """Every setting: alone, each n-gram type, and each draft model (by name) with each of `lengths`."""
    lengths = sorted(lengths)
    drafted = [each for name, path in drafters.items() for each in _by_draft_model(name, path, lengths)]
    return [Setting(ALONE, "alone"), *_by_n_grams(), *drafted]


def _by_n_grams() -> Iterator[Setting]:
    for kind in ("ngram-simple", "ngram-map-k", "ngram-map-k4v"):
        yield Setting(f"{kind} {_N}/{_M}", "n-gram", ("--spec-type", kind, *_sizes(kind)))
    sizes = ("--spec-ngram-mod-n-match", str(_N), "--spec-ngram-mod-n-min", "1", "--spec-ngram-mod-n-max", str(_M))
    yield Setting(f"ngram-mod {_N}/{_M}", "n-gram", ("--spec-type", "ngram-mod", *sizes))
    yield Setting("ngram-cache", "n-gram", ("--spec-type", "ngram-cache"))


def _by_draft_model(drafter: str, path: Path, lengths: list[int]) -> Iterator[Setting]:
    model = ["--spec-draft-model", str(path), "--spec-draft-threads", "1", "--spec-draft-threads-batch", "1"]
    model += ["--spec-draft-type-k", "f16", "--spec-draft-type-v", "f16"]

    def setting(name: str, *flags: str) -> Setting:
        return Setting(f"{name}, {drafter}", "draft model", (*model, *flags), drafter)

    for length in lengths:
        simple = ("--spec-type", "draft-simple", "--spec-draft-n-max", str(length))
        yield setting(f"draft-simple {length}", *simple)
        if length >= _LONG:
            yield setting(f"draft-simple {length}, p-min {_P_MIN}", *simple, "--spec-draft-p-min", str(_P_MIN))
    both = ("--spec-type", "ngram-map-k,draft-simple", *_sizes("ngram-map-k"), "--spec-draft-n-max", str(lengths[0]))
    yield setting(f"ngram-map-k {_N}/{_M}, else draft-simple {lengths[0]}", *both)


def _sizes(kind: str) -> tuple[str, ...]:
    return (f"--spec-{kind}-size-n", str(_N), f"--spec-{kind}-size-m", str(_M))
