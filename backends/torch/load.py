"""Loads a model on PyTorch: whole on one device, or split over several."""

import os
from collections.abc import MutableMapping

import torch

from backends.neuron import REQUIREMENTS, VISIBLE, claim, import_neuron
from backends.torch import compiling
from backends.torch.backend import TorchBackend
from backends.torch.compiling import NEURON, keep_programs
from backends.torch.read_model import Reader, find_device, find_dtype, free_bytes, load_model
from specpair.engines.backend import Progress
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import FreeMemory, LoadOptions


def load(options: LoadOptions, progress: Progress | None = None, *, read: Reader = load_model) -> TorchBackend:
    """Load a model folder or a GGUF file; `read` loads the model's weights. Raises ModelLoadError."""
    cores = claim_cores(options)
    compiler = _compiler(options)
    keep_programs(options, compiler)
    if compiler == NEURON:
        import_neuron("torch_neuronx", REQUIREMENTS)  # this import adds the device to PyTorch
    if (options.tensor_parallel or 1) > 1:
        if read is not load_model:
            reason = "a model that is no file cannot be spread over devices: leave it out"
            raise ModelLoadError(f"tensor_parallel: {reason}", "tensor_parallel")
        from backends.torch.tensor_parallel import LeaderShard  # one device does without torch.distributed

        return LeaderShard(options, progress, compiler=compiler, cores=cores)
    return TorchBackend(options, progress, compiler=compiler, read=read)


def compiles(options: LoadOptions) -> bool:
    """Whether `load` compiles the model. Raises ModelLoadError, also for a missing device."""
    claim_cores(options)  # to find the device counts the devices
    compiler = _compiler(options)
    if compiler != NEURON:  # whose device is not registered yet
        find_device(options.device)
    return compiler is not None


def programs_folder(options: LoadOptions) -> str | None:
    """The folder for a model's programs; None: the compiler chooses it. Raises ModelLoadError."""
    return compiling.programs_folder(options, _compiler(options))


def room(options: LoadOptions) -> FreeMemory | None:
    """The memory for a model; None: unknown before the device is used. Raises ModelLoadError."""
    if _compiler(options) == NEURON:
        return None
    device = find_device(options.device)
    free, width = free_bytes(device), find_dtype(options.dtype, device).itemsize
    devices = (options.tensor_parallel or 1) if device.type == "cuda" else 1
    return None if free is None else FreeMemory(devices * free, width, width)


def _compiler(options: LoadOptions) -> str | None:
    """The name of torch.compile's backend; None: nothing is compiled. Raises ModelLoadError."""
    kind = find_device(None).type if options.device is None else options.device.partition(":")[0]
    if kind == NEURON:  # there, models are always compiled
        return NEURON
    return "inductor" if options.compile else None


def claim_cores(options: LoadOptions, environment: MutableMapping[str, str] = os.environ) -> list[int] | None:
    """Claim the NeuronCores that the model takes, one for each part; None: it runs on other devices.

    It is to be called before anything counts the devices, since TorchNeuron then reads the variables and remembers the
    number. So it goes by the kind of device that is registered, whether the machine has one or not.
    """
    kind, _, index = (options.device or "").partition(":")
    if options.device is None:
        registered = torch.accelerator.current_accelerator()
        kind = "" if registered is None else registered.type
    if kind != NEURON:
        return None
    if index not in ("", "0"):
        raise ModelLoadError(
            f"device {options.device}: a process claims the cores that it uses and counts these from 0: "
            f"set {VISIBLE}={index} and device to {NEURON}",
            "device",
        )
    count, module = options.tensor_parallel or 1, getattr(torch, NEURON, None)
    if count > 1 and module is not None and module.is_initialized():
        raise ModelLoadError(
            f"tensor_parallel {count}: this process uses a NeuronCore already, and TorchNeuron spreads a model only in "
            "a process that has used none: load this model first, or restart",
            "tensor_parallel",
        )
    return claim(count, environment, one_process=False) or list(range(count))
