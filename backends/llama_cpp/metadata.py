"""What a GGUF file states about its model, and whether such a model generates text."""

import ctypes
from typing import Any

from backends.generators import NoGenerator
from backends.llama_cpp.library import lib


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


def _value(model: Any, key: str) -> str | None:
    text = ctypes.create_string_buffer(256)
    found = lib.llama_model_meta_val_str(model, key.encode(), text, len(text))
    return text.value.decode(errors="replace") if found >= 0 else None
