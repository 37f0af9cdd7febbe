"""The memory that llama.cpp has for a model: the machine's, a GPU's, or that of both."""

import ctypes

from llama_cpp import _ggml

from backends.llama_cpp.library import lib
from backends.llama_cpp.model import KV_BYTES
from backends.machine import available_bytes
from specpair.engines.load_options import LoadOptions
from specpair.engines.room import Room

_GPU = 1  # of ggml's types of devices: a GPU with memory of its own; one that shares the machine's is another type
_ggml.libggml.ggml_backend_dev_count.restype = ctypes.c_size_t
_ggml.libggml.ggml_backend_dev_get.restype = ctypes.c_void_p


def room(options: LoadOptions) -> Room:
    """What there is for a model. With `gpu_layers` -1 all of it goes to GPUs, with another number a part of it."""
    gpus = gpu_bytes() if options.gpu_layers != 0 and lib.llama_supports_gpu_offload() else []
    host = 0 if gpus and options.gpu_layers == -1 else available_bytes()
    return Room(host + sum(gpus), cached=KV_BYTES[options.kv_type])


def gpu_bytes() -> list[int]:
    """Bytes of memory that are free on each GPU that has its own."""
    ggml, found = _ggml.libggml, []
    for at in range(ggml.ggml_backend_dev_count()):
        device = ctypes.c_void_p(ggml.ggml_backend_dev_get(ctypes.c_size_t(at)))
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        if ggml.ggml_backend_dev_type(device) == _GPU:
            found.append(free.value)
    return found
