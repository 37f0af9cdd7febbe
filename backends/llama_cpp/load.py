"""Loads a GGUF file, after a check that llama.cpp can run on this machine."""

from backends.base import COMPILATION, LoadOptions, Progress
from backends.llama_cpp import selfcheck
from backends.llama_cpp.backend import LlamaBackend
from backends.llama_cpp.vocabulary import check_gguf


def load(options: LoadOptions, progress: Progress | None = None) -> LlamaBackend:
    """Load a GGUF file. Raises ModelLoadError with the library's reason, EngineCrash where llama.cpp cannot run."""
    options.refuse("llama_cpp", "device", "dtype", "compile", "tensor_parallel", *COMPILATION)
    check_gguf(options.model)  # before the self-check, which can take seconds
    return LlamaBackend(options, progress, extra_buffers=selfcheck.extra_buffers() and not options.deterministic)
