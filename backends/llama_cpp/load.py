"""Loads a GGUF file, after a check that llama.cpp can run on this machine."""

import os
from collections.abc import Callable

from backends.llama_cpp import selfcheck
from backends.llama_cpp.backend import LlamaBackend
from backends.llama_cpp.room import room as room
from backends.llama_cpp.vocabulary import check_gguf
from specpair.engines.backend import Progress
from specpair.engines.load_options import COMPILATION, LoadOptions


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
    check_gguf(options.model)  # before the self-check, which can take seconds
    return made_by(options, progress, extra_buffers=selfcheck.extra_buffers() and not options.deterministic)
