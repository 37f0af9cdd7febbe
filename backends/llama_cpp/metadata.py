"""What a GGUF file states about its model, and whether such a model generates text."""

import ctypes
from collections.abc import Callable
from typing import Any

from backends.generators import NoGenerator
from backends.llama_cpp.library import lib
from specpair.engines.backend import DEFAULT_TEMPLATE

_TEMPLATE = "tokenizer.chat_template"


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
