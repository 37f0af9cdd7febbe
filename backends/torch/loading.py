"""What a user asks of PyTorch, turned into a loaded model: which device, which numbers, from which kind of file."""

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import modeling_gguf_pytorch_utils as gguf_reading

from backends.base import DTYPES, LoadOptions, ModelLoadError, first_line
from backends.hugging_face.folder import FOLDER, check_folder
from backends.hugging_face.folder import model_name as model_name  # which users of this module look for here
from backends.hugging_face.vocabulary import read_chat_template, read_vocabulary
from backends.vocabulary import Vocabulary

# What `load_model` is: path, options, device, number type -> the model. Raises ModelLoadError.
Reader = Callable[[Path | None, LoadOptions, torch.device, torch.dtype], Any]

_log = logging.getLogger("specpair.torch")
gguf_reading.tqdm = partial(gguf_reading.tqdm, disable=True)  # no bars between the lines of a text
_WORDS = 400  # signs of an error that are shown
_READS = f"{FOLDER}, or a GGUF file"
_ATTENTION = {"full_attention", "sliding_attention"}
_GROWING = {"dynamic", "longrope"}  # ways to write positions that change with the longest text of a pass
_STRETCHED = {"linear", "yarn"}  # ways by which a model takes `factor` times the positions that it was trained with


def check_options(options: LoadOptions) -> None:
    """Raises ModelLoadError for what this engine would otherwise leave aside in silence."""
    options.refuse("torch", "deterministic", "mmap", "gpu_layers")
    if options.kv_type != "f16":  # unless it was left as it is
        raise ModelLoadError(f"kv_type {options.kv_type}: the torch backend caches in the model's dtype: set that")


def find_device(name: str | None) -> torch.device:
    """The device of this name, or without one the best there is. Raises ModelLoadError."""
    if name is None:
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return accelerator if accelerator is not None else torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        raise ModelLoadError(f"device {name!r} cannot be used here: {first_line(error)}") from None
    return device


def find_dtype(name: str | None, device: torch.device) -> torch.dtype:
    """The number type of this name; without one float32 on a CPU and bfloat16 elsewhere. Raises ModelLoadError."""
    if name is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if name not in DTYPES:
        raise ModelLoadError(f"dtype {name!r} is unknown: choose one of {', '.join(DTYPES)}")
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def source_of(path: Path | None) -> dict[str, Any]:
    """How transformers is told of a folder in Hugging Face layout or of a GGUF file. Raises ModelLoadError."""
    if path is not None and os.path.isfile(path):  # unlike Path's, it bears with names that no file can have
        return {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    return {"pretrained_model_name_or_path": check_folder(path, "torch", reads=_READS)}


def load_model(path: Path | None, options: LoadOptions, device: torch.device, dtype: torch.dtype) -> Any:
    """The model of a folder in Hugging Face layout or of a GGUF file, ready to run. Raises ModelLoadError.

    Of a model for several devices it is this process's part, of the process group that `torch_spread` has opened.
    """
    source = source_of(path)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if options.tensor_parallel > 1:
        from transformers.distributed import DistributedConfig  # nobody else pays for it

        source["distributed_config"] = DistributedConfig(tp_size=options.tensor_parallel)
    try:
        model, found = transformers.AutoModelForCausalLM.from_pretrained(
            **source,
            dtype=dtype,
            local_files_only=True,
            attn_implementation=None if options.flash_attention else "eager",  # None: the best that it has
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
        model = model.to(device).eval().requires_grad_(False)
    except Exception as error:  # the library raises whatever it meets: a bad file, a family it lacks, too little memory
        _log.debug("loading %s failed", path, exc_info=True)
        raise _not_loaded(path, error) from error
    _check_weights(path, found)
    return model


def _check_weights(path: Path | None, found: dict[str, Any]) -> None:
    """Raises ModelLoadError for weights that `found` has not: the library would go on with random numbers."""
    missing = [str(name) for name in found["missing_keys"]]
    others = [f"{name} {tuple(there)} for {tuple(here)}" for name, there, here in found["mismatched_keys"]]
    for what, names in (("has no weights", missing), ("has weights of another shape", others)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise ModelLoadError(
                f"{path} {what} {', '.join(sorted(names)[:3])}{more}, which its configuration asks for: "
                "are config.json and the weights of one model, and complete?"
            )


def read_config(path: Path | None) -> Any:
    """The configuration of the text model there, without the model. Raises ModelLoadError."""
    source = source_of(path)
    try:
        return transformers.AutoConfig.from_pretrained(**source, local_files_only=True).get_text_config()
    except Exception as error:  # as above
        raise _not_loaded(path, error) from error


def _not_loaded(path: Path | None, error: Exception) -> ModelLoadError:
    whole = " ".join(str(error).split())[:_WORDS] or repr(error)  # of several lines, the last may be what matters
    cut = " (is the file complete?)" if path is not None and os.path.isfile(path) else ""
    return ModelLoadError(f"transformers could not load {path}: {whole}{cut}")


def load_vocabulary(path: Path, size: int) -> tuple[Vocabulary, str | None]:
    """The vocabulary and the chat template of what `load_model` loaded; `size`: ids it gives logits for."""
    if path.is_file():
        from backends.llama_cpp.vocabulary import read_gguf_vocabulary  # here: a folder is read without llama.cpp

        return read_gguf_vocabulary(path)
    return read_vocabulary(path, size), read_chat_template(path)


def context_of(config: Any, asked: int | None) -> int:
    """Positions a row. Raises ModelLoadError when asked for more than works."""
    stated = int(getattr(config, "max_position_embeddings", 0) or 0)  # none where distances are all that counts
    trained = stated or 4096
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in _GROWING:
        most = int(rope.get("original_max_position_embeddings") or trained)
        if asked is not None and asked > most:
            raise ModelLoadError(
                f"context {asked}: beyond {most} tokens this model writes all positions of a text anew, and what is "
                f"cached would be of no use: at most {most}"
            )
        trained = min(trained, most)
    # Where positions are stretched, folders state the length before that or the one behind it: both are let through.
    most = int(trained * max(1.0, rope.get("factor") or 1.0)) if rope.get("rope_type") in _STRETCHED else trained
    if asked is not None and stated and asked > most:
        raise ModelLoadError(f"context {asked}: this model was trained for {trained} positions: at most {most}")
    return asked or min(trained, 4096)


class Masks:
    """Which places a token may look at, in each kind of layer. Raises ModelLoadError where one is no attention."""

    def __init__(self, config: Any, name: str, dtype: torch.dtype) -> None:
        self._added = dtype if config._attn_implementation == "eager" else None  # numbers to add, in place of bits
        self._types = set(getattr(config, "layer_types", None) or ())
        self._window = getattr(config, "sliding_window", None)
        if getattr(config, "use_sliding_window", True) is False:
            self._window = None
        if not self._types <= _ATTENTION:
            others = ", ".join(sorted(self._types - _ATTENTION))
            raise ModelLoadError(
                f"{name} has layers of {others}, which cannot take back rejected tokens: "
                "choose a model with attention in every layer"
            )

    def of(self, positions: Tensor, span: int) -> Tensor | dict[str, Tensor]:
        """`positions` (rows, tokens) -> (rows, 1, tokens, span); one of each kind where layers differ."""
        places = torch.arange(span, device=positions.device)
        here = positions[:, None, :, None]
        full = places <= here
        if self._window is None or self._types == {"full_attention"}:
            return self._finished(full)
        near = self._finished(full & (places > here - self._window))
        return {"full_attention": self._finished(full), "sliding_attention": near} if self._types else near

    def _finished(self, mask: Tensor) -> Tensor:
        if self._added is None:
            return mask
        return torch.where(mask, 0.0, torch.finfo(self._added).min).to(self._added)
