"""How much memory of a device is free, where the device tells."""

import logging
from typing import Any

import torch

from backends.base import first_line
from backends.machine import available_bytes

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
        allocated = int(module.memory_allocated(index))
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        _log.debug("the memory of %s is unknown: %s", device, first_line(error))
        return None
    if total <= 0:  # TorchNeuron's answer where its runtime does not tell
        _log.debug("the memory of %s is unknown: it states %d bytes", device, total)
        return None
    return max(0, total - allocated)
