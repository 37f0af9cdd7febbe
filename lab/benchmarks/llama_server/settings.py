"""The settings of llama-server that are measured: what all share, and each way to speculate.

Names and defaults are those of `llama-server --help` at the commit that was compiled:

    --spec-draft-n-max      draft tokens at most (3)
    --spec-draft-p-min      a draft ends before a token that is less likely for the draft model (0)
    --spec-ngram-*-size-n   tokens that must have occurred before (12; ngram-mod: n-match, 24)
    --spec-ngram-*-size-m   draft tokens at most (48; ngram-mod: n-max, 64)

The defaults of the n-gram types are for long repetitions, on processors where a wide pass costs little. So each is also
measured with the short ones of prompt lookup. `ngram-cache` has no settings but its files, and drafts 8 tokens at most.
A draft model drafts each of the given lengths, and the greatest of them as far as it is confident. It is also joined to
an n-gram type: that drafts first, and the model where it finds nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ALONE = "llama-server alone"
_P_MINS = (0.5, 0.75)  # `--spec-draft-p-min`
_N, _M = 3, 8  # tokens that must have occurred before, and draft tokens at most
_JOINED = "ngram-map-k"  # the n-gram type before a draft model


class Setting(NamedTuple):
    """One way in which llama-server writes. Without flags it does not speculate."""

    name: str
    flags: tuple[str, ...] = ()


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
    return [Setting(ALONE), *_by_n_grams(), *drafted]


def _by_n_grams() -> Iterator[Setting]:
    mod = ("--spec-ngram-mod-n-match", str(_N), "--spec-ngram-mod-n-min", "1", "--spec-ngram-mod-n-max", str(_M))
    short = {kind: _sizes(kind) for kind in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")} | {"ngram-mod": mod}
    for kind, sizes in short.items():
        yield Setting(kind, ("--spec-type", kind))
        yield Setting(f"{kind} {_N}/{_M}", ("--spec-type", kind, *sizes))
    yield Setting("ngram-cache", ("--spec-type", "ngram-cache"))


def _by_draft_model(drafter: str, path: Path, lengths: list[int]) -> Iterator[Setting]:
    model = ["--spec-draft-model", str(path), "--spec-draft-threads", "1", "--spec-draft-threads-batch", "1"]
    model += ["--spec-draft-type-k", "f16", "--spec-draft-type-v", "f16"]

    def setting(name: str, length: int, p_min: float, types: str = "draft-simple", *sizes: str) -> Setting:
        drafts = ("--spec-type", types, "--spec-draft-n-max", str(length), "--spec-draft-p-min", str(p_min), *sizes)
        name += f" {length}, p-min {p_min}" if p_min else f" {length}"
        return Setting(f"{name}, {drafter}", (*model, *drafts))

    ways = [*((length, 0.0) for length in lengths), *((lengths[-1], p_min) for p_min in _P_MINS)]
    for length, p_min in ways:
        yield setting("draft-simple", length, p_min)
    for length, p_min in (ways[0], ways[-1]):
        joined = f"{_JOINED},draft-simple", *_sizes(_JOINED)
        yield setting(f"{_JOINED} {_N}/{_M}, draft-simple", length, p_min, *joined)


def _sizes(kind: str) -> tuple[str, ...]:
    return (f"--spec-{kind}-size-n", str(_N), f"--spec-{kind}-size-m", str(_M))
