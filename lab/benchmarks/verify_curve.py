"""Measures a verify against a decode step: the time of a pass by rows and drafts, for an engine on this machine.

Method. Every slot holds `--context-held` tokens. A pass feeds each of its rows the pending token and k drafts and asks
of each what suffices to decide at `--temperature`, as the verifier's engine does; the result lies on the host, so a
GPU's work is over when the call returns. Each timed pass follows an untimed one of its kind. Cells run in rounds, in
another order each time, each between two decode steps (one row, k = 0), and is compared with their mean. Rounds go on
for `--seconds`, three at least, after one that does not count. Printed are medians over the rounds. The milliseconds
are also written as JSON, from which the simulator reads what passes take: a prompt is one row with many drafts
(`--rows 1 --drafts 0 63 255 511`), and a file knows the one context at which it was measured.

With `--leaves`, trees of as many drafts are timed, too, each with a path that is kept behind its pass: a chain, with
second choices at its first places.

The model is `--model`, a folder or file that the engine reads, or `--shape`, a Llama with random weights, which PyTorch
makes on the device (needs torch and transformers, no network and nothing else of requirements.txt). With `--compile`
every shape of a pass is compiled first, which takes minutes for a large model; few `--rows` and small `--batch-tokens`
make them few.

    python -m lab.benchmarks.verify_curve --shape 8b --device cuda
    python -m lab.benchmarks.verify_curve --shape 100m --rows 1 2 4 --threads 1                       # small, on a CPU
    python -m lab.benchmarks.verify_curve --backend llama_cpp --model models/stdlib-target-q8_0.gguf --threads 1
"""

import argparse
import json
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from backends.registry import load
from lab.benchmarks.harness.report import Report, need, parser_of, processor
from specpair.engines.backend import Backend, Entry, TopLogitsSpec
from specpair.engines.errors import BackendError
from specpair.engines.load_options import DTYPES, LoadOptions
from specpair.speculation.sampling.sampling import Sampling, top_logits_spec

Clock = Callable[[], float]
ENGINES = {"torch": ("torch", "transformers"), "llama_cpp": ("llama_cpp",)}  # and what they need
LEAST_ROUNDS = 3


def _shape(*sizes: int, tied: bool) -> dict[str, Any]:
    sizes_of = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    named = zip((*sizes_of, "head_dim", "vocab_size"), sizes, strict=True)
    return {**dict(named), "tie_word_embeddings": tied}


SHAPES = {  # those of Llama 3 (8b) and 3.2 (3b, 1b), and smaller ones for a CPU and for tests
    "8b": _shape(32, 4096, 14336, 32, 8, 128, 128_256, tied=False),
    "3b": _shape(28, 3072, 8192, 24, 8, 128, 128_256, tied=True),
    "1b": _shape(16, 2048, 8192, 32, 8, 64, 128_256, tied=True),
    "100m": _shape(12, 768, 2048, 12, 4, 64, 32_000, tied=True),
    "tiny": _shape(2, 64, 96, 2, 1, 32, 512, tied=True),
}


class Cell(NamedTuple):
    """One kind of pass: a number of rows (sequences), each with its pending token and a number of drafts.

    `leaves`: of the drafts' tree, whose other leaves are second choices at the first places of a chain. 1: a chain.
    """

    rows: int
    drafts: int
    leaves: int = 1

    @property
    def parents(self) -> tuple[int, ...]:
        """Of the drafts, as in `Entry.parents`: the chain's, then the second choices'."""
        others = self.leaves - 1
        chain = self.drafts - others
        return (1,) * chain + (chain + 1,) * others if others else ()

    @property
    def path(self) -> list[int]:
        """Of the drafts, those to the last of the second choices, as indices in the entry."""
        return [*range(1, self.leaves - 1), self.drafts]

    @property
    def tokens(self) -> int:
        """How many tokens the pass feeds."""
        return self.rows * (self.drafts + 1)


STEP = Cell(1, 0)  # one decode step of one sequence


class Timing(NamedTuple):
    """The medians of a cell's rounds. `ratio`: to a decode step; `spread`: of ratios, by quartiles."""

    ms: float
    ratio: float
    spread: float


TABLES: dict[str, Callable[[Timing], str]] = {
    "milliseconds": lambda each: f"{each.ms:.2f}" if each.ms < 100 else f"{each.ms:.0f}",
    "times one decode step": lambda each: f"{each.ratio:.2f}",
    "spread of the times one decode step, quartile to quartile": lambda each: f"{each.spread:.0%}",
}


def grid(rows: Sequence[int], drafts: Sequence[int], most_tokens: int, leaves: Sequence[int] = ()) -> list[Cell]:
    """The cells of these rows and drafts, with their reference cells, as far as a pass holds them.

    `leaves`: of trees, each of as many drafts as have room for so many second choices beside a chain.
    """
    cells = {Cell(count, length) for count in rows for length in {0, *drafts}}
    cells |= {cell._replace(leaves=each) for cell in cells for each in leaves if 2 * each - 2 <= cell.drafts}
    return sorted(cell for cell in {STEP, *cells} if cell.tokens <= most_tokens)


class Passes:
    """Runs cells on an engine whose slots hold `held` tokens each.

    `wanted` is what is asked of each row of logits. What a pass adds to a slot, the next one takes back at no cost.
    """

    def __init__(self, backend: Backend, held: int, wanted: TopLogitsSpec, clock: Clock = time.perf_counter) -> None:
        self._backend, self._held, self._wanted, self._clock = backend, held, wanted, clock
        ids = np.random.default_rng(0).integers(0, backend.vocabulary.size, backend.context_length)
        self._ids: list[int] = ids.tolist()
        for slot in range(backend.slots):
            for start in range(0, held, backend.max_batch_tokens):
                chunk = self._ids[start : min(held, start + backend.max_batch_tokens)]
                backend.extend_top_logits([Entry(slot, start, chunk, len(chunk))], [wanted])

    def batch(self, cell: Cell) -> list[Entry]:
        """The pending token and the drafts of each row, all of them judged, as a verifier feeds them."""
        tokens = self._ids[self._held : self._held + cell.drafts + 1]
        return [Entry(slot, self._held, tokens, 0, cell.parents) for slot in range(cell.rows)]

    def seconds(self, cell: Cell) -> float:
        """Seconds of a pass that follows one of its kind: the first of a kind finds the caches of another kind."""
        batch, wanted = self.batch(cell), [self._wanted] * cell.rows
        self._run(batch, wanted, cell)
        began = self._clock()
        self._run(batch, wanted, cell)  # the result is on the host, so the device has finished
        return self._clock() - began

    def _run(self, batch: Sequence[Entry], wanted: Sequence[TopLogitsSpec], cell: Cell) -> None:
        """Run a pass; of a tree, keep a path, as after each verify."""
        self._backend.extend_top_logits(batch, wanted)
        for entry in batch if cell.leaves > 1 else ():
            self._backend.keep(entry.slot, cell.path)


def measure(seconds: Callable[[Cell], float], cells: Sequence[Cell], more: Callable[[int], bool]) -> dict[Cell, Timing]:
    """Time rounds of all cells, each time in another order, and each cell between two decode steps.

    `seconds`: of a pass. `more`: after so many rounds.

    A machine that changes its pace from one second to the next does so for a cell and for the steps beside it.
    """
    shuffle, rounds = random.Random(0).sample, 0
    taken: dict[Cell, list[float]] = {cell: [] for cell in cells}
    ratios: dict[Cell, list[float]] = {cell: [] for cell in cells}
    while more(rounds):
        before = seconds(STEP)
        for cell in shuffle(list(cells), len(cells)):
            took, after = seconds(cell), seconds(STEP)
            taken[cell].append(took)
            ratios[cell].append(2 * took / (before + after))
            before = after
        rounds += 1
    found = {}
    for cell in cells:
        low, middle, high = (float(each) for each in np.percentile(ratios[cell], (25, 50, 75)))
        found[cell] = Timing(1e3 * median(taken[cell]), middle, (high - low) / middle)
    return found


def tables(found: Mapping[Cell, Timing]) -> list[str]:
    """Of chains: rows down, drafts across; of trees, for each number of rows: leaves down, drafts across."""
    chains = {(cell.rows, cell.drafts): timing for cell, timing in found.items() if cell.leaves == 1}
    lines = []
    for title, shown in TABLES.items():
        lines += _table(title, "rows", {at: shown(each) for at, each in chains.items()})
    for rows in sorted({cell.rows for cell in found if cell.leaves > 1}):
        ratios = {
            (cell.leaves, cell.drafts): f"{each.ratio / chains[rows, cell.drafts].ratio:.2f}"
            for cell, each in found.items()
            if cell.leaves > 1 and cell.rows == rows
        }
        lines += _table(f"trees of k drafts, times the chain of k, rows {rows}", "leaves", ratios)
    return lines


_CORNER = " \\ k"


def _table(title: str, down: str, shown: Mapping[tuple[int, int], str]) -> list[str]:
    """The lines of a table; a dash marks passes with too many tokens."""
    across = sorted({column for _, column in shown})
    lines = ["", title, f"{down + _CORNER:>10}" + "".join(f"{column:>9}" for column in across)]
    for row in sorted({row for row, _ in shown}):
        lines.append(f"{row:>10}" + "".join(f"{shown.get((row, column), '-'):>9}" for column in across))
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    options = options_from(arguments)
    need(*ENGINES[options.backend])
    try:
        with closing(_load(options)) as backend:
            _measure(backend, options)
    except BackendError as error:
        raise SystemExit(f"verify_curve: {error}") from error


def _measure(backend: Backend, options: argparse.Namespace) -> None:
    if options.leaves and not backend.takes_trees:
        raise SystemExit(f"verify_curve: --leaves: {options.backend} takes no trees with this model")
    cells = grid(options.rows, options.drafts, backend.max_batch_tokens, options.leaves or ())
    sampling = Sampling(seed=0, temperature=options.temperature)
    passes = Passes(backend, options.context_held, top_logits_spec(sampling, backend.vocabulary.size))
    measure(passes.seconds, cells, lambda rounds: rounds < 1)
    until, rounds = time.perf_counter() + options.seconds, 0

    def more(done: int) -> bool:
        nonlocal rounds
        rounds = done
        return done < LEAST_ROUNDS or time.perf_counter() < until

    found = measure(passes.seconds, cells, more)
    ran = _of_torch(options) if options.backend == "torch" else _of_llama_cpp()
    facts = {"device": ran["device"], "model": backend.model_name, "engine": options.backend} | ran
    named = [facts[key] for key in ("device", "model", "engine", "dtype") if key in facts]
    named += ["compiled"] if options.compile else []
    name = "_".join(["verify_curve", *(re.sub("[^a-z0-9]+", "-", part.lower()).strip("-") for part in named)])
    given = argparse.Namespace(**{key: value for key, value in vars(options).items() if key != "out"})
    report = Report("verify_curve", given, name, options.out)
    report.line(*(f"# {key}: {value}" for key, value in (facts | {"rounds": rounds}).items()), *tables(found))
    report.save()
    chains = [
        {"rows": cell.rows, "drafts": cell.drafts, "ms": round(each.ms, 4)}
        for cell, each in found.items()
        if cell.leaves == 1
    ]
    told = facts | {"context": options.context_held, "cells": chains}
    report.companion(".json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _of_llama_cpp() -> dict[str, str]:
    """Where llama.cpp ran: it puts all layers on the GPUs that it was compiled for."""
    from backends.llama_cpp.load import gpu_names

    return {
        "device": ", ".join(gpu_names()) or processor(),
        "versions": f"llama-cpp-python {version('llama-cpp-python')}",
    }


def _of_torch(options: argparse.Namespace) -> dict[str, str]:
    """Where and in which numbers PyTorch ran."""
    import torch

    from backends.torch.read_model import find_device, find_dtype

    device = find_device(options.device)
    names = {"cpu": processor} | ({"cuda": lambda: torch.cuda.get_device_name(device)} if device.type == "cuda" else {})
    return {
        "device": names.get(device.type, lambda: str(device))(),
        "dtype": str(find_dtype(options.dtype, device)).removeprefix("torch."),
        "versions": f"torch {version('torch')}, transformers {version('transformers')}",
    }


def _load(options: argparse.Namespace) -> Backend:
    """The engine with its model. Raises ModelLoadError."""
    same = {name: getattr(options, name) for name in ("model", "batch_tokens", "threads", "device", "dtype", "compile")}
    length = options.context_held + max(options.drafts) + 1
    settings = LoadOptions(slots=max(options.rows), context_length=length, **same)
    if options.model:
        return load(options.backend, settings)
    from backends.torch.load import load as load_torch
    from lab.benchmarks.harness.random_llama import model_folder, read_random

    with model_folder(options.shape, SHAPES[options.shape]) as folder:
        return load_torch(replace(settings, model=folder), read=read_random)


def options_from(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line's options."""
    flags = {
        "backend": {"choices": ENGINES, "default": "torch"},
        "shape": {"choices": SHAPES, "help": "a Llama of random weights (torch only)"},
        "model": {"type": Path, "help": "a model folder or a GGUF file"},
        "device": {"help": "cpu, cuda, cuda:1, mps … (torch only; default: the best there is)"},
        "dtype": {"choices": DTYPES, "help": "torch only; default: float32 on a CPU, bfloat16 elsewhere"},
        "compile": {"default": False, "help": "compile each shape of a pass first (torch only)"},
        "threads": {"type": int, "help": "of the processor (default: the engine's choice)"},
        "rows": [1, 2, 4, 8, 16],
        "drafts": {"default": [0, 1, 2, 3, 4, 6, 8, 12, 16], "help": "values of k"},
        "leaves": {"type": int, "nargs": "+", "help": "of trees, 2 or more (default: no trees)"},
        "context-held": {"default": 512, "help": "tokens that each slot holds"},
        "batch-tokens": {"default": 512, "help": "in one pass: larger cells are left out"},
        "temperature": {"default": 0.8, "help": "which decides the logits that a pass returns"},
        "seconds": {"default": 60.0, "help": "duration of the measurement"},
        "out": {"type": Path, "help": "the folder for the results (default: as without and with --save)"},
    }
    parser = parser_of(__doc__, flags)
    options = parser.parse_args(arguments)
    if (options.shape is None) == (options.model is None):
        parser.error("give one of --shape and --model")
    if options.shape and options.backend != "torch":
        parser.error(f"--shape: {options.backend} needs a --model")
    for name, value, least in (
        ("rows", min(options.rows), 1),
        ("drafts", min(options.drafts), 0),
        ("leaves", min(options.leaves or [2]), 2),
    ):
        if value < least:
            parser.error(f"--{name}: must be {least} or more, got {value}")
    try:
        Sampling(temperature=options.temperature)
    except ValueError as error:
        parser.error(str(error))
    return options


if __name__ == "__main__":
    main()
