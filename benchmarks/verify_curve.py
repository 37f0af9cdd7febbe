"""What a verify costs against a decode step: the time of one pass by rows and drafts, on this machine, on an engine.

Method. Every row holds `--context-held` tokens. A pass feeds each of its rows the pending token and k drafts at once
and asks of each what suffices to decide at `--temperature`, through the backend contract as the verifier's engine does;
what comes back lies on the host, so a GPU's work is over when the call returns. Each timed pass follows an untimed one
of its kind. Cells run in rounds, in another order each time, each cell between two decode steps (one row, k = 0), and
is compared with the mean of these two: a shared machine changes its pace for all three. Rounds go on for `--seconds`,
three at least, after one that does not count. Printed are medians over the rounds. With as many accepted drafts a row
and round as "times the same rows without drafts" says, less one, verifying is worth what plain decoding is.

The model is `--shape`, a Llama with random weights made on the device (no weights are read or written, nothing comes
from the network), or `--model`, a folder or file that the engine reads. `--shape` needs torch, transformers and what
they bring, and nothing else of requirements.txt; a GGUF file needs llama-cpp-python, and with the torch engine also
gguf and accelerate. With `--compile` every shape of a pass is compiled first, which takes minutes for a large
model: few `--rows`, and `--batch-tokens` no larger than the largest pass, make them few. Passes then are as long as the
next shape (rows: 1, 4, 16 … and all; tokens a row: 1, 2, 4, 8, 16, and each row by itself beyond 16).

    python -m benchmarks.verify_curve --shape 8b --device cuda
    python -m benchmarks.verify_curve --shape 100m --rows 1 2 4 --threads 1                       # small, on a CPU
    python -m benchmarks.verify_curve --backend llama_cpp --model models/stdlib-target-q8_0.gguf --threads 1
"""

import argparse
import json
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from backends.base import DTYPES, Backend, BackendError, LoadOptions, head_for
from backends.registry import load
from benchmarks.extras import need
from benchmarks.report import Report, add_save, processor
from benchmarks.shapes import SHAPES
from benchmarks.verify_cells import Cell, Figure, Passes, figures, grid, measure, table
from speculation.sampling.sampling import Sampling

ENGINES = ("torch", "llama_cpp")
PACKAGES = {"torch": ("torch", "transformers"), "llama_cpp": ("llama-cpp-python",)}
MODULES = {"torch": ("torch", "transformers"), "llama_cpp": ("llama_cpp",)}
TABLES: dict[str, Callable[[Figure], str]] = {
    "milliseconds": lambda each: f"{each.ms:.2f}" if each.ms < 100 else f"{each.ms:.0f}",
    "times one decode step": lambda each: f"{each.ratio:.2f}",
    "times the same rows without drafts": lambda each: f"{each.widened:.2f}",
    "spread of the times one decode step, quartile to quartile": lambda each: f"{each.spread:.0%}",
    "tokens per second of all rows, with no draft accepted": lambda each: f"{each.bounds[0]:.0f}",
    "tokens per second of all rows, with every draft accepted": lambda each: f"{each.bounds[1]:.0f}",
}
LEAST_ROUNDS = 3


def main(arguments: Sequence[str] | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
    options = _options(arguments)
    need(*MODULES[options.backend])
    try:
        with _loaded(options) as backend:
            _measure(backend, options, clock)
    except BackendError as error:
        raise SystemExit(f"verify_curve: {error}") from error


def _measure(backend: Backend, options: argparse.Namespace, clock: Callable[[], float]) -> None:
    cells = grid(options.rows, options.drafts, backend.max_batch_tokens)
    sampling = Sampling(seed=0, temperature=options.temperature)
    passes = Passes(backend, options.context_held, head_for(sampling, backend.vocabulary.size), clock)
    measure(passes.seconds, cells, lambda rounds: rounds < 1)
    until = clock() + options.seconds
    samples = measure(passes.seconds, cells, lambda rounds: rounds < LEAST_ROUNDS or clock() < until)
    _write(options, _facts(backend, options, len(samples[cells[0]])), figures(samples))


def _write(options: argparse.Namespace, facts: dict[str, object], found: dict[Cell, Figure]) -> None:
    """The tables as text, and the same with what they are about as JSON."""
    given = argparse.Namespace(**{key: value for key, value in vars(options).items() if key != "out"})
    name = _file_name(facts)
    report = Report("verify_curve", given, name, options.out)
    for key, value in facts.items():
        if key not in ("date", "python"):  # which the report's own head tells
            report.line(f"# {key}: {value}")
    for title, show in TABLES.items():
        for line in table(title, found, show):
            report.line(line)
    report.save()
    record = {**facts, "cells": [figure.record() for figure in found.values()]}
    report.beside(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _file_name(facts: dict[str, object]) -> str:
    """`verify_curve_` with the device, the model and how it ran."""
    parts = [str(facts[key]) for key in ("device", "model", "engine", "dtype") if key in facts]
    parts += ["compiled"] if facts["compiled"] else []
    return "_".join(["verify_curve", *(re.sub("[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts)])


def _facts(backend: Backend, options: argparse.Namespace, rounds: int) -> dict[str, object]:
    """What the figures are about."""
    machine = _of_torch(options) if options.backend == "torch" else _of_llama()
    versions = {package: _version(package) for package in PACKAGES[options.backend]}
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        **machine,
        "model": backend.model_name,
        **({"shape": f"{SHAPES[options.shape]}, random weights"} if options.shape else {}),
        "engine": options.backend,
        "compiled": options.compile,
        "versions": ", ".join(f"{package} {number}" for package, number in versions.items()),
        "python": platform.python_version(),
        "rounds": rounds,
        "cache": f"{backend.kv_bytes / 2**20:.0f} MiB for {backend.rows} rows",
    }


def _of_torch(options: argparse.Namespace) -> dict[str, object]:
    """Where and in which numbers PyTorch ran, and the memory it took."""
    import torch

    from backends.torch.loading import find_device, find_dtype

    device = find_device(options.device)
    dtype = str(find_dtype(options.dtype, device)).removeprefix("torch.")
    if device.type == "cuda":
        memory = f"{torch.cuda.max_memory_allocated(device) / 2**20:.0f} MiB of the device at most"
        return {"device": torch.cuda.get_device_name(device), "dtype": dtype, "memory": memory}
    return {"device": processor() if device.type == "cpu" else str(device), "dtype": dtype, "memory": _peak()}


def _of_llama() -> dict[str, object]:
    """The same for llama.cpp, whose numbers are those of the file."""
    from backends.llama_cpp.library import lib

    offloaded = " and what llama.cpp offloads to" if lib.llama_supports_gpu_offload() else ""
    return {"device": processor() + offloaded, "memory": _peak()}


def _peak() -> str:
    """The most memory that this process has had."""
    try:
        import resource
    except ImportError:  # not on Windows
        return "unknown"
    unit = 1 if sys.platform == "darwin" else 1024
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20:.0f} MiB of this process at most"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


@contextmanager
def _loaded(options: argparse.Namespace) -> Iterator[Backend]:
    """The engine with its model. Raises ModelLoadError."""
    settings = LoadOptions(
        model=options.model,
        rows=max(options.rows),
        context_length=options.context_held + max(options.drafts) + 1,
        batch_tokens=options.batch_tokens,
        threads=options.threads,
        device=options.device,
        dtype=options.dtype,
        compile=options.compile,
    )
    backend = load(options.backend, settings, _progress) if options.model else _random(options.shape, settings)
    with closing(backend):
        yield backend


def _random(shape: str, settings: LoadOptions) -> Backend:
    from backends.torch import backend as torch_model
    from benchmarks.random_model import model_folder, read_random

    with model_folder(shape) as folder:
        return torch_model.load(replace(settings, model=folder), _progress, read=read_random)


def _progress(fraction: float) -> None:
    if sys.stderr.isatty():
        print(f"\rloading {fraction:4.0%}", end="\n" if fraction == 1.0 else "", file=sys.stderr, flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=ENGINES, default="torch")
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--shape", choices=SHAPES, help="a Llama of random weights (torch only)")
    model.add_argument("--model", type=Path, help="a model folder or a GGUF file")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, mps … (torch only; default: the best there is)")
    parser.add_argument("--dtype", choices=DTYPES, help="torch only; default: float32 on a CPU, bfloat16 elsewhere")
    parser.add_argument("--compile", action="store_true", help="compile each shape of a pass first (torch only)")
    parser.add_argument("--threads", type=_positive, help="of the processor (default: what the engine chooses)")
    parser.add_argument("--rows", type=_positive, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--drafts", type=_natural, nargs="+", default=[0, 1, 2, 3, 4, 6, 8, 12, 16], help="values of k")
    parser.add_argument("--context-held", type=_positive, default=512, help="tokens that each row holds")
    parser.add_argument("--batch-tokens", type=_positive, default=512, help="in one pass: larger cells are left out")
    parser.add_argument("--temperature", type=float, default=0.8, help="what is asked of a row depends on it")
    parser.add_argument("--seconds", type=float, default=60.0, help="to measure for")
    parser.add_argument("--out", type=Path, help="the folder for the results (default: as without and with --save)")
    add_save(parser)
    options = parser.parse_args(arguments)
    if options.shape and options.backend != "torch":
        parser.error(f"--shape is for the torch engine: give {options.backend} a --model")
    try:
        Sampling(temperature=options.temperature)
    except ValueError as error:
        parser.error(str(error))
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {value}")
    return value


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be 0 or more, got {value}")
    return value


if __name__ == "__main__":
    main()
