"""How much memory of a device is free, where the device tells, and whether a model fits."""

import logging
import math
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from backends.machine import available_bytes
from backends.neuron.chips import trn2_core_bytes
from backends.torch.compiling import NEURON
from backends.torch.read_model import context_of, read_config
from specpair.engines.errors import ModelLoadError, first_line
from specpair.engines.load_options import LoadOptions
from specpair.engines.model_files import read_json

_log = logging.getLogger("specpair.torch")


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
        needs = f"{_gib(weights / devices)} GiB for weights and {_gib(cache / devices)} GiB for {slots} slots"
        raise ModelLoadError(
            f"tensor_parallel {devices}: each device needs {needs} of {context} tokens, {_gib(free)} are free: "
            f"{advice}lower slots or context",
            "tensor_parallel",
        )


def heads_of(config: Any) -> tuple[int, int]:
    """Heads of keys and values, and of queries; zeros for a model without attention."""
    queries = int(getattr(config, "num_attention_heads", 0) or 0)
    one = getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False)
    return 1 if one else int(getattr(config, "num_key_value_heads", 0) or queries), queries


def _weights(folder: Path, *, without_head: bool) -> int:
    """How many numbers the weights in a folder are; 0 for files that cannot be read, of which the load will tell.

    `without_head`: an output embedding in the files is not loaded, since the input embedding serves in its place.
    """
    index = read_json(folder / "model.safetensors.index.json")
    try:
        count = 0
        for name in set(index.get("weight_map", {}).values()) or {"model.safetensors"}:
            with safe_open(folder / name, framework="np") as file:
                names = [each for each in file.keys() if not (without_head and each == "lm_head.weight")]  # noqa: SIM118
                count += sum(math.prod(file.get_slice(each).get_shape()) for each in names)
        return count
    except (OSError, SafetensorError, AttributeError, TypeError) as error:
        _log.debug("the weights in %s cannot be counted: %s", folder, first_line(error))
        return 0


def _gib(count: float) -> str:
    return f"{count / 2**30:.1f}"
