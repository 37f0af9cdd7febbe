"""A model of llama.cpp without a context: its weights, what its file states, and how large its KV cache is."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends.llama_cpp.library import interrupts_held, lib, take_warnings
from specpair.engines.backend import DEFAULT_TEMPLATE, Progress
from specpair.engines.errors import ModelLoadError, NoGenerator
from specpair.engines.load_options import LoadOptions

KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "q4_0": 2}  # ggml_type numbers
KV_BYTES = {"f32": 4.0, "f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}

_TEMPLATE = "tokenizer.chat_template"


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


def stated(model: Any, key: str) -> str | None:
    """The value that the file states under the architecture's name and `key`; None if it states none."""
    return _value(model, f"{_value(model, 'general.architecture')}.{key}")


def stated_integer(model: Any, key: str) -> int | None:
    """The integer that the file states under the architecture's name and `key`; None if it states none."""
    text = stated(model, key)
    return None if text is None else int(text)


def check_generates(model: Any, name: str) -> None:
    """Raises NoGenerator for a model that does not write a text token by token."""
    if stated_integer(model, "pooling_type"):
        sign = "its file states a pooling of all positions"
    elif stated(model, "attention.causal") == "false" or "bert" in (_value(model, "general.architecture") or ""):
        sign = "its tokens attend to later ones"
    elif lib.llama_model_has_encoder(model) or not lib.llama_model_has_decoder(model):
        sign = "it has an encoder"
    else:
        return
    raise NoGenerator(name, sign)


def chat_templates(model: Any) -> dict[str, str]:
    """The chat templates of a loaded model, by name."""
    keys = [_text(lib.llama_model_meta_key_by_index, model, at) for at in range(lib.llama_model_meta_count(model))]
    names = [key.removeprefix(f"{_TEMPLATE}.") for key in keys if key is not None and key.startswith(f"{_TEMPLATE}.")]
    found = {name: lib.llama_model_chat_template(model, name.encode()) for name in names}
    found |= {DEFAULT_TEMPLATE: lib.llama_model_chat_template(model, None)}
    return {name: template.decode() for name, template in found.items() if template}


def _value(model: Any, key: str) -> str | None:
    return _text(lib.llama_model_meta_val_str, model, key.encode())


def _text(read: Callable[..., int], model: Any, which: bytes | int) -> str | None:
    text = ctypes.create_string_buffer(256)
    found = read(model, which, text, len(text))
    return text.value.decode(errors="replace") if found >= 0 else None
