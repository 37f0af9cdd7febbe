"""Pure transformations of a model file: other precision, more layers."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, LlamaFileType, quants

from models.errors import ExportError
from models.gguf_file import Field, Gguf, Tensor

TYPES: Final = ("f16", "q8_0", "q4_0")
MAX_LAYERS: Final = 512  # LLAMA_MAX_LAYERS: llama.cpp ends the process, rather than the load, beyond it

_KINDS: Final = {"f16": GGMLQuantizationType.F16, "q8_0": GGMLQuantizationType.Q8_0, "q4_0": GGMLQuantizationType.Q4_0}
_FILE_TYPES: Final = {
    "f16": LlamaFileType.MOSTLY_F16,
    "q8_0": LlamaFileType.MOSTLY_Q8_0,
    "q4_0": LlamaFileType.MOSTLY_Q4_0,
}
# A coarser file has already lost what a finer type could hold.
_FINE: Final = {
    GGMLQuantizationType.F32,
    GGMLQuantizationType.F16,
    GGMLQuantizationType.BF16,
    GGMLQuantizationType.Q8_0,
}
_PADDABLE: Final = ("llama", "qwen2", "qwen3")  # a layer is: x += attention(norm(x)); x += mlp(norm(x))
_OUTPUTS: Final = ("attn_output", "ffn_down")
_LAYER: Final = re.compile(r"blk\.(\d+)\.(.+)")
_PAD_COUNT: Final = "specpair.pad_layers"


def quantised(model: Gguf, kind: str) -> Gguf:
    """Return the model with every matrix in ``kind``, one of TYPES; vectors (norms, biases) stay as they are.

    Embeddings and an untied head stay at Q8_0 in a Q4_0 model: their rounding shows first. In the default target it
    makes 0.92 instead of 0.90 of the sampled tokens agree with Q8_0, where F16 embeddings gain nothing more. A row that
    does not divide into the type's blocks is kept in F16.

    Raises ExportError for an unknown kind and for input that is already coarser than Q8_0 and of another type.
    """
    if kind not in _KINDS:
        raise ExportError(f"unknown type {kind!r}: choose one of {', '.join(TYPES)}")
    tensors = [_requantised(tensor, _wanted(tensor.name, _KINDS[kind])) for tensor in model.tensors]
    file_type = Field(int(_FILE_TYPES[kind]), GGUFValueType.UINT32)
    version = Field(2, GGUFValueType.UINT32)  # of the block layouts; 2 since 2023
    fields = {**model.fields, "general.file_type": file_type, "general.quantization_version": version}
    return replace(model, fields=fields, tensors=tensors)


def padded(model: Gguf, layers: int) -> Gguf:
    """Return the model with ``layers`` more layers that add nothing to the residual stream.

    Each copies the weights of an existing layer, in turn, except that the two projections that write to the residual
    stream are zero. So the function computed is the same, to the bit, while the time and the memory traffic per token
    grow as they would in a deeper model: every added layer has its own bytes in the file and its own KV cache.

    Raises ExportError for a negative count, more than 512 layers in all, or an architecture with other layers.
    """
    if layers < 0:
        raise ExportError(f"cannot add {layers} layers: give a number from 0 up")
    if layers == 0:
        return model
    if model.architecture not in _PADDABLE:
        raise ExportError(f"cannot pad a {model.architecture} model: only {', '.join(_PADDABLE)} have known layers")
    have = model.layers
    if have + layers > MAX_LAYERS:
        raise ExportError(
            f"{have} + {layers} layers are too many: llama.cpp takes {MAX_LAYERS}, so add at most {MAX_LAYERS - have}"
        )
    originals: list[list[tuple[str, Tensor]]] = [[] for _ in range(have)]
    for tensor in model.tensors:
        if (match := _LAYER.fullmatch(tensor.name)) and int(match[1]) < have:
            originals[int(match[1])].append((match[2], tensor))
    for index, parts in enumerate(originals):
        missing = {f"{output}.weight" for output in _OUTPUTS} - {part for part, _ in parts}
        if missing:
            raise ExportError(f"cannot pad: layer {index} has no {' and no '.join(sorted(missing))}")
    added = [tensor for index in range(have, have + layers) for tensor in _copy(originals[index % have], index)]
    return replace(model, fields=dict(_grown(model, have, layers)), tensors=[*model.tensors, *added])


def _wanted(name: str, kind: GGMLQuantizationType) -> GGMLQuantizationType:
    if kind == GGMLQuantizationType.Q4_0 and name in ("token_embd.weight", "output.weight"):
        return GGMLQuantizationType.Q8_0
    return kind


def _requantised(tensor: Tensor, kind: GGMLQuantizationType) -> Tensor:
    if tensor.data.ndim < 2 or tensor.kind == kind:
        return tensor
    if tensor.kind not in _FINE:
        raise ExportError(
            f"{tensor.name} is {tensor.kind.name}, which has lost too much to become {kind.name}:"
            " start from the model in f16 or q8_0"
        )
    values = np.asarray(quants.dequantize(tensor.data, tensor.kind), dtype=np.float32)
    if values.shape[-1] % GGML_QUANT_SIZES[kind][0]:
        kind = GGMLQuantizationType.F16
    return Tensor(tensor.name, quants.quantize(values, kind), kind)


def _copy(parts: list[tuple[str, Tensor]], index: int) -> Iterator[Tensor]:
    for part, tensor in parts:
        # Zero bytes are zero weights in every GGML type: a block of them has scale zero.
        silent = part.split(".")[0] in _OUTPUTS
        data = np.zeros(tensor.data.shape, tensor.data.dtype) if silent else tensor.data
        yield Tensor(f"blk.{index}.{part}", data, tensor.kind)


def _grown(model: Gguf, have: int, layers: int) -> Iterator[tuple[str, Field]]:
    """The metadata for ``layers`` more layers: the count, the name, and any list with one entry per layer."""
    prefix = f"{model.architecture}."
    earlier = model.fields.get(_PAD_COUNT)
    for name, field in model.fields.items():
        value: Any = field.value
        if name == f"{prefix}block_count":
            value = have + layers
        elif name.startswith(prefix) and isinstance(value, list) and len(value) == have:
            value = value + [value[index % have] for index in range(layers)]
        elif name == "general.name":
            value = f"{value} +{layers} pad layers"
        yield name, replace(field, value=value)
    yield _PAD_COUNT, Field((earlier.value if earlier else 0) + layers, GGUFValueType.UINT32)
