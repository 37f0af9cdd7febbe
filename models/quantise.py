"""Quantises a model to another precision."""

from dataclasses import replace
from typing import Final

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, LlamaFileType, quants

from models.errors import ExportError
from models.gguf_file import Field, Gguf, Tensor

TYPES: Final = ("f16", "q8_0", "q4_0")  # in capitals, the library's names

# The types to requantise from. Coarser types have lost precision already.
_FINE: Final = {
    GGMLQuantizationType.F32,
    GGMLQuantizationType.F16,
    GGMLQuantizationType.BF16,
    GGMLQuantizationType.Q8_0,
}


def quantised(model: Gguf, kind: str) -> Gguf:
    """Return the model with every matrix in ``kind``, one of TYPES; vectors (norms, biases) are unchanged.

    Embeddings and an untied LM head stay in Q8_0 in a Q4_0 model, since their rounding matters most: 0.92, not 0.90, of
    the default target's sampled tokens then equal those in Q8_0; F16 embeddings gain nothing more. A matrix whose
    rows do not divide into the type's blocks is kept in F16.

    Raises ExportError for an unknown kind, and for input of another type that is coarser than Q8_0.
    """
    if kind not in TYPES:
        raise ExportError(f"unknown type {kind!r}: choose one of {', '.join(TYPES)}")
    matrices = GGMLQuantizationType[kind.upper()]
    tensors = [_requantised(tensor, _wanted(tensor.name, matrices)) for tensor in model.tensors]
    file_type = Field(int(LlamaFileType[f"MOSTLY_{kind.upper()}"]), GGUFValueType.UINT32)
    version = Field(2, GGUFValueType.UINT32)  # of the block layouts; 2 since 2023
    fields = {**model.fields, "general.file_type": file_type, "general.quantization_version": version}
    return replace(model, fields=fields, tensors=tensors)


def _wanted(name: str, kind: GGMLQuantizationType) -> GGMLQuantizationType:
    """The type of the tensor called ``name`` in a model of type ``kind``."""
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
