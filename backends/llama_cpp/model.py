"""A model of llama.cpp without a context: its weights, and how large its KV cache is."""

from pathlib import Path
from typing import Any

from backends.llama_cpp.library import interrupts_held, lib, take_warnings
from backends.llama_cpp.metadata import stated_integer
from specpair.engines.backend import Progress
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions

KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "q4_0": 2}  # ggml_type numbers
KV_BYTES = {"f32": 4.0, "f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}


def load_model(path: Path, options: LoadOptions, progress: Progress | None, extra_buffers: bool) -> Any:
    """Load a model's weights. Returns the library's handle, which the caller frees. Raises ModelLoadError."""
    params = lib.llama_model_default_params()
    params.use_extra_bufts = extra_buffers
    params.n_gpu_layers = options.gpu_layers
    params.load_mode = lib.LLAMA_LOAD_MODE_MMAP if options.mmap else lib.LLAMA_LOAD_MODE_NONE

    raised: list[BaseException] = []  # exceptions in the callback: ctypes would drop them

    def report(fraction: float, _user_data: object) -> bool:
        try:
            if progress is not None:
                progress(fraction)
        except BaseException as error:
            raised.append(error)
        return not (raised or held)

    callback = lib.llama_progress_callback(report)
    params.progress_callback = callback
    take_warnings()  # drop earlier messages
    model = None
    try:
        with interrupts_held() as held:
            model = lib.llama_model_load_from_file(str(path).encode(), params)
        if raised:
            raise raised[0]
    except BaseException:
        if model:
            lib.llama_model_free(model)
        raise
    if not model:
        raise ModelLoadError(f"llama.cpp could not load {path}: {take_warnings()}")
    return model


def kv_bytes_per_token(model: Any, kv_type: str) -> int:
    """Bytes of the KV cache for one token of one slot, over all layers."""
    usual = lib.llama_model_n_embd(model) // max(1, lib.llama_model_n_head(model))  # head width, unless one is stated
    widths = sum(stated_integer(model, f"attention.{part}_length") or usual for part in ("key", "value"))
    values = lib.llama_model_n_layer(model) * lib.llama_model_n_head_kv(model) * widths
    return int(values * KV_BYTES[kv_type])
