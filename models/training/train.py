"""Trains a model pair on the source of the Python standard library, on any machine.

    python -m models.training.train --out pair
    python -m models.export pair/target target.gguf --type q8_0

The folder receives ``tokenizer.json``, ``target/``, ``draft-plain/`` (the draft model before distillation) and
``draft/``, in Hugging Face layout. Each is the result of one stage. Finished stages are kept: an interrupted run
resumes when it is started again with the same options.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from models.errors import ExportError
from models.training.corpus import Corpus, CorpusError, add_source, encode_all, read_corpus, train_tokenizer, windows
from specpair.extras import extras_named

with extras_named("torch"):
    from tokenizers import Tokenizer

    from models.training.model import (
        Loss,
        Shape,
        Weights,
        cross_entropy,
        fit,
        held_out_loss,
        imitation,
        initial_weights,
        load,
        save,
    )

TARGET: Final = Shape(hidden=256, layers=8, heads=4, kv_heads=2, ffn=768)
DRAFT: Final = Shape(hidden=128, layers=2, heads=2, kv_heads=1, ffn=384)

Say = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """The models to train, and for how many training steps: each on ``batch`` windows of ``length`` tokens."""

    target: Shape = TARGET
    draft: Shape = DRAFT
    target_steps: int = 1400
    draft_steps: int = 1600
    distil_steps: int = 420
    batch: int = 8
    length: int = 512
    seed: int = 0


def make_pair(recipe: Recipe, corpus: Corpus, out: Path, say: Say) -> None:
    """Run the stages whose results ``out`` does not hold yet. ``say`` gets lines about the progress."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "tokenizer.json"
    if path.exists():
        say(f"{path.name}: already there, kept")
        tokenizer = Tokenizer.from_file(str(path))
    else:
        tokenizer = train_tokenizer(corpus.training, recipe.target.vocabulary)
        tokenizer.save(str(path))
    training, held_out = encode_all(tokenizer, corpus.training), encode_all(tokenizer, corpus.held_out)
    say(f"corpus: {len(corpus.training)} files, {len(training):,} tokens; held out {len(held_out):,}")

    def stage(name: str, shape: Shape, start: Callable[[], Weights], steps: int, loss: Loss, peak: float) -> Weights:
        folder = out / name
        if (folder / "model.safetensors").exists():
            say(f"{name}: already there, kept")
            return load(folder, shape)
        weights = start()
        size = sum(weight.numel() for weight in weights.values())
        say(f"{name}: {size:,} parameters, {steps} steps")
        batches = windows(training, recipe.length, recipe.batch, recipe.seed)
        fit(weights, shape, batches, steps, loss, report=progress(name, steps, say), peak=peak)
        save(folder, weights, shape)
        say(f"{name}: held-out loss {held_out_loss(weights, shape, held_out, recipe.length):.3f} nats a token")
        return weights

    def fresh(shape: Shape) -> Callable[[], Weights]:
        return lambda: initial_weights(shape, recipe.seed)

    target = stage("target", recipe.target, fresh(recipe.target), recipe.target_steps, cross_entropy, 1.0)
    plain = stage("draft-plain", recipe.draft, fresh(recipe.draft), recipe.draft_steps, cross_entropy, 1.0)
    # At half the learning rates: the draft model knows the language already and only has to approach its teacher.
    stage("draft", recipe.draft, lambda: plain, recipe.distil_steps, imitation(target, recipe.target), 0.5)


def progress(name: str, steps: int, say: Say) -> Callable[[int, float], None]:
    """Reports a stage's progress at intervals. Called with the finished steps, and the loss of the last one."""
    every, began = max(1, min(50, steps // 4)), time.monotonic()

    def report(done: int, loss: float) -> None:
        if done % every == 0 or done == steps:
            left = (steps - done) * (time.monotonic() - began) / done / 60
            say(f"{name}: step {done}/{steps}, loss {loss:.3f}, {left:.0f} min left")

    return report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m models.training.train",
        description="Train a target and a draft model on the source of the Python standard library.",
        epilog="The results are folders in Hugging Face layout; python -m models.export makes GGUF files of them.",
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="FOLDER", help="where the pair goes")
    add_source(parser)
    add("--seed", type=int, default=0, help="of the random numbers (default: 0)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status: 0, or 1 after one line on stderr."""
    options = _parser().parse_args(arguments)
    try:
        corpus = read_corpus(options.source)
        make_pair(Recipe(seed=options.seed), corpus, options.out, lambda line: print(line, flush=True))
    except (CorpusError, ExportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
