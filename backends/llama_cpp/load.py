"""Loads a GGUF file, after a check that llama.cpp runs on this machine, and reports GPUs and memory."""

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from backends.llama_cpp import selfcheck
from backends.llama_cpp.backend import LlamaBackend
from backends.llama_cpp.library import ggml, lib
from backends.llama_cpp.model import KV_BYTES, find_gguf
from backends.llama_cpp.requantised import requantised
from backends.machine import available_bytes
from specpair.engines.backend import Progress
from specpair.engines.load_options import COMPILATION, STORED, FreeMemory, LoadOptions

_GPU = 1  # of ggml's types of devices: a GPU with memory of its own; one that shares the machine's is another type
ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
ggml.ggml_backend_dev_description.restype = ctypes.c_char_p


def load(
    options: LoadOptions, progress: Progress | None = None, *, made_by: Callable[..., LlamaBackend] = LlamaBackend
) -> LlamaBackend:
    """Load a GGUF file. Raises ModelLoadError with the library's reason, EngineCrash where llama.cpp cannot run.

    `made_by`: takes the arguments of `LlamaBackend`.
    """
    options.refuse("llama_cpp", "device", "dtype", "compile", "tensor_parallel", *COMPILATION)
    if options.deterministic:
        # Weights in K-quants then have one kernel for all widths on CPUs, so passes can be wider (`equal_up_to`). The
        # library reads this when its first pass runs, so it is for the whole process.
        os.environ.setdefault("GGML_CPU_TILED_MM", "0")
    path = find_gguf(options.model)  # before the self-check, which can take seconds
    repacked = selfcheck.extra_buffers() and not options.deterministic
    if options.weights != STORED and repacked and not on_gpus(options):
        options = replace(options, model=requantised(path, progress))
    return made_by(options, progress, extra_buffers=repacked)


def room(options: LoadOptions) -> FreeMemory:
    """The memory for a model. With `gpu_layers` -1, all of a model goes to GPUs; with another number, a part."""
    gpus = gpu_bytes() if on_gpus(options) else []
    host = 0 if gpus and options.gpu_layers == -1 else available_bytes()
    return FreeMemory(host + sum(gpus), cached=KV_BYTES[options.kv_type])


def on_gpus(options: LoadOptions) -> bool:
    """Whether GPUs, if there are any, compute at least a part of a model."""
    return options.gpu_layers != 0 and bool(lib.llama_supports_gpu_offload())


def gpu_bytes() -> list[int]:
    """Free bytes on each GPU with its own memory."""
    found = []
    for device in _gpus():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        found.append(free.value)
    return found


def gpu_names() -> list[str]:
    """The name of each GPU with its own memory."""
    return [ggml.ggml_backend_dev_description(device).decode() for device in _gpus()]


def _gpus() -> Iterator[ctypes.c_void_p]:
    for at in range(ggml.ggml_backend_dev_count()):
        device = ctypes.c_void_p(ggml.ggml_backend_dev_get(ctypes.c_size_t(at)))
        if ggml.ggml_backend_dev_type(device) == _GPU:
            yield device
