"""Reads a model for PyTorch by a user's options: device and its free memory, number type, weights, vocabulary."""

import logging
import math
import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import modeling_gguf_pytorch_utils as gguf_reading

from backends.hugging_face import FOLDER, check_folder, read_vocabulary
from backends.machine import available_bytes, gib
from backends.neuron import trn2_core_bytes
from backends.torch.compiling import NEURON
from models.errors import BadHead
from models.safetensors_file import tensors_in
from specpair.engines.errors import ModelLoadError, first_line
from specpair.engines.load_options import DTYPES, LoadOptions
from specpair.engines.model_files import read_chat_templates, read_json
from specpair.engines.vocabulary import Vocabulary
from specpair.extras import installing

# The type of `load_model`: path, options, device, number type -> the model. Raises ModelLoadError.
Reader = Callable[[Path | None, LoadOptions, torch.device, torch.dtype], Any]

_log = logging.getLogger("specpair.torch")
gguf_reading.tqdm = partial(gguf_reading.tqdm, disable=True)  # no progress bars in the output
_ERROR_CHARACTERS = 400  # how much of a library's error message is shown
_READS = f"{FOLDER}, or a GGUF file"
_GROWING = {"dynamic", "longrope"}  # RoPE types whose encoding of a position depends on the longest text of a pass
_STRETCHED = {"linear", "yarn"}  # RoPE types that allow `factor` times the positions that the model was trained on


def check_options(options: LoadOptions) -> None:
    """Raises ModelLoadError for options that this engine would otherwise silently ignore."""
    options.refuse("torch", "deterministic", "mmap", "gpu_layers")
    if options.kv_type != "f16":  # the default
        raise ModelLoadError(
            f"kv_type {options.kv_type}: the torch backend caches in the model's dtype: set that", "kv_type"
        )


def find_device(name: str | None) -> torch.device:
    """The device called `name`; None: an accelerator if there is one, else the CPU. Raises ModelLoadError."""
    if name is None:
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return accelerator if accelerator is not None else torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        raise ModelLoadError(f"device {name!r} cannot be used here: {first_line(error)}", "device") from None
    return device


def find_dtype(name: str | None, device: torch.device) -> torch.dtype:
    """The dtype called `name`; None: float32 on a CPU and bfloat16 elsewhere. Raises ModelLoadError."""
    if name is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if name not in DTYPES:
        raise ModelLoadError(f"dtype {name!r} is unknown: choose one of {', '.join(DTYPES)}", "dtype")
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def source_of(path: Path | None) -> dict[str, Any]:
    """Arguments of `from_pretrained` for a folder in Hugging Face layout or a GGUF file. Raises ModelLoadError."""
    if path is not None and os.path.isfile(path):  # unlike Path.is_file, it accepts names that no file can have
        for name in ("gguf", "llama_cpp"):  # for weights, for the vocabulary
            if find_spec(name) is None:
                raise ModelLoadError(
                    f"a GGUF file is read with {name}, too, which is not installed: {installing('llama')}; "
                    "a folder of safetensors does without it"
                )
        from backends.llama_cpp.model import check_gguf  # here, since folders do not need llama.cpp

        check_gguf(path)
        return {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    return {"pretrained_model_name_or_path": check_folder(path, "torch", reads=_READS)}


def load_model(path: Path | None, options: LoadOptions, device: torch.device, dtype: torch.dtype) -> Any:
    """Load the model of a folder in Hugging Face layout or of a GGUF file onto `device`. Raises ModelLoadError.

    With tensor parallelism this process loads its part; `backends.torch.tensor_parallel` has opened the process group.
    """
    source = source_of(path)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if (options.tensor_parallel or 1) > 1:
        from transformers.distributed import DistributedConfig  # a slow import, needed here only

        source["distributed_config"] = DistributedConfig(tp_size=options.tensor_parallel)
    try:
        model, found = transformers.AutoModelForCausalLM.from_pretrained(
            **source,
            dtype=dtype,
            local_files_only=True,
            attn_implementation=None if options.flash_attention else "eager",  # None: the best available
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
        model = model.to(device).eval().requires_grad_(False)
    except Exception as error:  # any type: a bad file, an unknown model family, too little memory
        _log.debug("loading %s failed", path, exc_info=True)
        raise _not_loaded(path, error) from error
    _check_weights(path, found)
    return model


def _check_weights(path: Path | None, found: dict[str, Any]) -> None:
    """Raises ModelLoadError for missing weights or wrong shapes, where the library uses random weights.

    `found`: the loading info of `from_pretrained`, which lists them.
    """
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
    """Read the configuration of the text model at `path`, but not its weights. Raises ModelLoadError."""
    source = source_of(path)
    try:
        return transformers.AutoConfig.from_pretrained(**source, local_files_only=True).get_text_config()
    except Exception as error:  # any type
        raise _not_loaded(path, error) from error


def _not_loaded(path: Path | None, error: Exception) -> ModelLoadError:
    reason = " ".join(str(error).split())[:_ERROR_CHARACTERS] or repr(error)  # all lines: the last may matter most
    hint = " (is the file complete?)" if path is not None and os.path.isfile(path) else ""
    return ModelLoadError(f"transformers could not load {path}: {reason}{hint}")


def load_vocabulary(path: Path, size: int) -> tuple[Vocabulary, dict[str, str]]:
    """Read the vocabulary and the chat templates of a model that gives logits for `size` ids. Raises ModelLoadError."""
    if path.is_file():
        from backends.llama_cpp.model import read_gguf_vocabulary  # here, since folders do not need llama.cpp

        return read_gguf_vocabulary(path)
    return read_vocabulary(path, size), read_chat_templates(path)


def context_of(config: Any, asked: int | None) -> int:
    """The context length in tokens: `asked`; None: the model's trained length, at most 4,096.

    Raises ModelLoadError if the model does not support `asked`.
    """
    stated = int(getattr(config, "max_position_embeddings", 0) or 0)  # none for models of relative positions only
    trained = stated or 4096
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in _GROWING:
        most = int(rope.get("original_max_position_embeddings") or trained)
        if asked is not None and asked > most:
            raise ModelLoadError(
                f"context {asked}: beyond {most} tokens this model changes the positions of the whole text, so that "
                f"cached keys would be wrong: at most {most}",
                "context",
            )
        trained = min(trained, most)
    # With stretched positions, some folders state the length before stretching, some the length after: allow both.
    most = int(trained * max(1.0, rope.get("factor") or 1.0)) if rope.get("rope_type") in _STRETCHED else trained
    if asked is not None and stated and asked > most:
        raise ModelLoadError(
            f"context {asked}: this model was trained for {trained} positions: at most {most}", "context"
        )
    return asked or min(trained, 4096)


def free_bytes(device: torch.device) -> int | None:
    """Bytes of memory that are free on `device`; None: unknown.

    A CPU and Metal share the machine's memory. Of other devices than CUDA's, what this process has not allocated counts
    as free. A NeuronCore is one process's alone, so that nobody else allocates there.
    """
    if device.type in ("cpu", "mps"):
        return available_bytes()
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        module: Any = torch.get_device_module(device)
        module.synchronize()  # TorchNeuron allocates asynchronously: before this, its numbers lag behind
        index = module.current_device() if device.index is None else device.index
        total = int(module.get_device_properties(index).total_memory)
        if total <= 0 and device.type == NEURON:  # TorchNeuron's answer where its runtime does not tell
            total = trn2_core_bytes() or 0
        allocated = int(module.memory_allocated(index))
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        _log.debug("the memory of %s is unknown: %s", device, first_line(error))
        return None
    if total <= 0:
        _log.debug("the memory of %s is unknown: it states %d bytes", device, total)
        return None
    return max(0, total - allocated)


def check_fits(options: LoadOptions, dtype: torch.dtype, devices: int, free: int) -> None:
    """Raises ModelLoadError if weights and KV cache of a model folder exceed the `free` bytes of each of `devices`.

    It reads no weights, only what the files say of them, so that nothing is loaded or compiled in vain. One slot is
    counted if the options give no number. A GGUF file is not checked, nor a model without heads.
    """
    if options.model is None or not options.model.is_dir():
        return
    config = read_config(options.model)
    heads, queries = heads_of(config)
    if not heads:
        return
    width = getattr(config, "head_dim", None) or config.hidden_size // queries
    slots, context = options.slots or 1, context_of(config, options.context_length)
    weights = _weights(options.model, without_head=bool(getattr(config, "tie_word_embeddings", False))) * dtype.itemsize
    cache = 2 * config.num_hidden_layers * heads * width * context * slots * dtype.itemsize
    if weights + cache > devices * free:
        least = math.ceil((weights + cache) / max(free, 1))
        enough = next((each for each in range(least, heads + 1) if heads % each == 0), None)  # equal shares of heads
        advice = "" if enough is None else f"tensor_parallel {enough} suffices, or "
        needs = f"{gib(weights / devices)} GiB for weights and {gib(cache / devices)} GiB for {slots} slots"
        raise ModelLoadError(
            f"tensor_parallel {devices}: each device needs {needs} of {context} tokens, {gib(free)} are free: "
            f"{advice}lower slots or context",
            "tensor_parallel",
        )


def heads_of(config: Any) -> tuple[int, int]:
    """Heads of keys and values, and of queries; zeros for a model without attention."""
    queries = int(getattr(config, "num_attention_heads", 0) or 0)
    one = getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False)
    return 1 if one else int(getattr(config, "num_key_value_heads", 0) or queries), queries


def _weights(folder: Path, *, without_head: bool) -> int:
    """The number of weights in a folder; 0 for unreadable files, which the load reports.

    `without_head`: an output embedding in the files is not loaded, since the input embedding serves in its place.
    """
    index = read_json(folder / "model.safetensors.index.json")
    try:
        names = set(index.get("weight_map", {}).values()) or {"model.safetensors"}
        tensors = (tensor for name in names for tensor in tensors_in(folder / name))
        return sum(tensor.numbers for tensor in tensors if not (without_head and tensor.name == "lm_head.weight"))
    except (OSError, BadHead, AttributeError, TypeError) as error:
        _log.debug("the weights in %s cannot be counted: %s", folder, first_line(error))
        return 0
