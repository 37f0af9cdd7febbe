"""Loads a model on PyTorch: whole on one device, or split over several."""

from backends.base import LoadOptions, ModelLoadError, Progress
from backends.neuron.install import REQUIREMENTS, import_neuron
from backends.torch.backend import NEURON, TorchBackend
from backends.torch.read_model import Reader, find_device, load_model


def load(options: LoadOptions, progress: Progress | None = None, *, read: Reader = load_model) -> TorchBackend:
    """Load a model folder or a GGUF file; `read` loads the model's weights. Raises ModelLoadError."""
    compiler = _compiler(options)
    if compiler == NEURON:
        import_neuron("torch_neuronx", REQUIREMENTS)  # this import adds the device to PyTorch
    if (options.tensor_parallel or 1) > 1:
        if read is not load_model:
            reason = "a model that is no file cannot be spread over devices: leave it out"
            raise ModelLoadError(f"tensor_parallel: {reason}", "tensor_parallel")
        from backends.torch.tensor_parallel import LeadingPart  # one device does without torch.distributed

        return LeadingPart(options, progress, compiler=compiler)
    return TorchBackend(options, progress, compiler=compiler, read=read)


def compiles(options: LoadOptions) -> bool:
    """Whether `load` compiles the model. Raises ModelLoadError."""
    return _compiler(options) is not None


def _compiler(options: LoadOptions) -> str | None:
    """The name of torch.compile's backend; None: nothing is compiled. Raises ModelLoadError."""
    kind = find_device(None).type if options.device is None else options.device.partition(":")[0]
    if kind == NEURON:  # there, models are always compiled
        return NEURON
    return "inductor" if options.compile else None
