"""Loads a GGUF file, after a check that llama.cpp runs on this machine, and reports GPUs and memory."""

import ctypes
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from operator import eq
from statistics import mean

from backends.llama_cpp import selfcheck
from backends.llama_cpp.backend import LlamaBackend
from backends.llama_cpp.library import ggml, lib
from backends.llama_cpp.model import KV_BYTES, find_gguf
from backends.llama_cpp.requantised import requantised
from backends.machine import available_bytes
from specpair.engines.backend import Backend, Entry, Progress
from specpair.engines.errors import ModelLoadError, NoRoom
from specpair.engines.load_options import COMPILATION, DRAFT_KV, STORED, FreeMemory, LoadOptions, check_draft_kv
from specpair.engines.probe_texts import FIXED

_log = logging.getLogger("specpair.llama_cpp")
_PRECISE, _SMALL = DRAFT_KV
# Tokens of a text on which the two KV caches are compared, and the share of equal picks from which q8_0 will do.
# Measured (docs/modes.md): 93 % to 95 % with q8_0, 10 % to 79 % with q4_0, which is too coarse.
_PROBED, _AGREEING = 512, 0.875
_WIDTH = 16  # tokens of its passes: the logits of many rows take more memory than the cache
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


def load_draft(
    options: LoadOptions, progress: Progress | None = None, *, made_by: Callable[..., LlamaBackend] = LlamaBackend
) -> LlamaBackend:
    """Load a draft model. If its KV cache in f16 does not fit into memory, it gets one in q8_0.

    A KV cache in q8_0 is compared with one in f16 on a text. If they often differ, the cache is in f16 after all.
    Raises what `load` raises, NoRoom where neither will do, and ModelLoadError for a `kv_type` that is too coarse.
    """
    try:
        check_draft_kv(options.kv_type)
    except ValueError as error:
        raise ModelLoadError(f"kv_type: {error}", "kv_type") from None
    if options.kv_type != _SMALL:
        try:
            return load(options, progress, made_by=made_by)
        except NoRoom as error:
            if options.kv_type != _PRECISE:
                raise
            _log.warning("%s; %s is tried, which takes half of that", error, _SMALL)
            options = replace(options, kv_type=_SMALL)
    length = min(_PROBED, options.context_length or _PROBED)
    small = replace(options, kv_type=_PRECISE, slots=1, spare_slots=0, shared_cells=None, context_length=length)
    with closing(load(small, made_by=made_by)) as precise:
        ids = precise.vocabulary.encode("\n".join(FIXED))[:length]
        expected = _picks(precise, ids)
    with ExitStack() as on_failure:
        backend = load(options, progress, made_by=made_by)
        on_failure.callback(backend.close)
        compared = backend.context_length >= len(ids)  # else the model was trained on fewer tokens than the text has
        same = mean(map(eq, _picks(backend, ids), expected)) if compared else 1.0
        if same >= _AGREEING:
            on_failure.pop_all()
            return backend
    kept = f"{backend.model_name} picks {same:.0%} of its usual tokens with a KV cache in {_SMALL}"
    _log.warning("%s: it gets one in %s", kept, _PRECISE)
    return load(replace(options, kv_type=_PRECISE), progress, made_by=made_by)


def _picks(backend: Backend, ids: Sequence[int]) -> list[int]:
    """The likeliest token behind each of the last half of `ids`. A part of the first half was taken out before, so
    that what follows it has moved, as in the context of a long prompt."""
    middle, width = len(ids) // 2, min(_WIDTH, backend.max_batch_tokens)
    cut = middle // 4 if backend.can_splice else 0
    for at in range(0, middle, width):
        tokens = ids[at : min(at + width, middle)]
        backend.extend([Entry(0, at, tokens, len(tokens))])
    if cut:
        backend.splice(0, cut, 2 * cut)
    found = list[int]()
    for at in range(middle, len(ids), width):
        found += backend.extend([Entry(0, at - cut, ids[at : at + width], 0)])[0].argmax(axis=1).tolist()
    backend.release(0)
    return found


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
