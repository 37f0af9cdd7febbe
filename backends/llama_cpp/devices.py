"""The GPUs that llama.cpp was compiled for and sees: their names, and how much of their memory is free."""

import ctypes
from collections.abc import Iterator

from llama_cpp import _ggml

_GPU = 1  # of ggml's types of devices: a GPU with memory of its own; one that shares the machine's is another type
_ggml.libggml.ggml_backend_dev_count.restype = ctypes.c_size_t
_ggml.libggml.ggml_backend_dev_get.restype = ctypes.c_void_p
_ggml.libggml.ggml_backend_dev_description.restype = ctypes.c_char_p


def gpu_bytes() -> list[int]:
    """Bytes of memory that are free on each GPU that has its own."""
    found = []
    for device in _gpus():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        _ggml.libggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        found.append(free.value)
    return found


def gpu_names() -> list[str]:
    """What each GPU that has memory of its own is called."""
    return [_ggml.libggml.ggml_backend_dev_description(device).decode() for device in _gpus()]


def _gpus() -> Iterator[ctypes.c_void_p]:
    for at in range(_ggml.libggml.ggml_backend_dev_count()):
        device = ctypes.c_void_p(_ggml.libggml.ggml_backend_dev_get(ctypes.c_size_t(at)))
        if _ggml.libggml.ggml_backend_dev_type(device) == _GPU:
            yield device
