"""Loads a GGUF file, after a check that llama.cpp can run on this machine."""

import os
from collections.abc import Callable
from dataclasses import replace

from backends.llama_cpp import selfcheck
from backends.llama_cpp.backend import LlamaBackend
from backends.llama_cpp.devices import on_gpus
from backends.llama_cpp.devices import room as room
from backends.llama_cpp.requantised import requantised
from backends.llama_cpp.vocabulary import find_gguf
from specpair.engines.backend import Progress
from specpair.engines.load_options import COMPILATION, STORED, LoadOptions


def load(
    options: LoadOptions, progress: Progress | None = None, *, made_by: Callable[..., LlamaBackend] = LlamaBackend
) -> LlamaBackend:
    """Load a GGUF file. Raises ModelLoadError with the library's reason, EngineCrash where llama.cpp cannot run.

    `made_by`: takes the arguments of `LlamaBackend`.
    """
    options.refuse("llama_cpp", "device", "dtype", "compile", "tensor_parallel", *COMPILATION)
    if options.deterministic:
        # Weights in K-quants then have one kernel for all widths on CPUs, so passes can be wider (`widths.py`). The
        # library reads this when its first pass runs, so it is for the whole process.
        os.environ.setdefault("GGML_CPU_TILED_MM", "0")
    path = find_gguf(options.model)  # before the self-check, which can take seconds
    repacked = selfcheck.extra_buffers() and not options.deterministic
    if options.weights != STORED and repacked and not on_gpus(options):
        options = replace(options, model=requantised(path, progress))
    return made_by(options, progress, extra_buffers=repacked)
