"""Reads a GGUF file into a ``Gguf``, and writes one to a file.

The head is read by ``models.hub.gguf_head``, and written by the ``gguf`` package, under a temporary name, so that a
reader never sees an incomplete file. Tensor data of a file that was read stays on disk, memory-mapped.
"""

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, GGUFWriter
from numpy.typing import NDArray

from models.errors import BadHead, ExportError
from models.hub.gguf_head import Field as Field
from models.hub.gguf_head import TensorInfo, read_head

_MAGIC: Final = b"GGUF"
_KINDS: Final = {
    str: GGUFValueType.STRING,
    bool: GGUFValueType.BOOL,
    int: GGUFValueType.UINT32,
    float: GGUFValueType.FLOAT32,
}
_ARCHITECTURE: Final = "general.architecture"
_NUMBERS: Final = {  # other kinds are blocks
    GGMLQuantizationType.F16: np.float16,
    GGMLQuantizationType.F32: np.float32,
    GGMLQuantizationType.F64: np.float64,
    GGMLQuantizationType.I8: np.int8,
    GGMLQuantizationType.I16: np.int16,
    GGMLQuantizationType.I32: np.int32,
    GGMLQuantizationType.I64: np.int64,
}


@dataclass(frozen=True)
class Tensor:
    """One tensor: numbers in the tensor's shape, or quantised blocks as uint8 with a row's bytes as last dimension."""

    name: str
    data: NDArray[Any]
    kind: GGMLQuantizationType


@dataclass(frozen=True)
class Gguf:
    """A model file: its architecture, its other metadata and its tensors, in the order of the file."""

    architecture: str
    fields: Mapping[str, Field]
    tensors: Sequence[Tensor]

    def get(self, key: str) -> Any:
        """The value of a key under the architecture's name, such as ``block_count``; None if the file lacks it."""
        field = self.fields.get(f"{self.architecture}.{key}")
        return None if field is None else field.value

    @property
    def layers(self) -> int:
        """The number of layers that the file declares. Raises ExportError if it declares none."""
        count = self.get("block_count")
        if not isinstance(count, int):
            raise ExportError(f"the model declares no {self.architecture}.block_count: it is not a language model")
        return count


def field_of(value: str | bool | int | float | list[str] | list[int]) -> Field:
    """An entry of the metadata, of the type in which llama.cpp reads such values."""
    if not isinstance(value, list):
        return Field(value, _KINDS[type(value)])
    texts = value and isinstance(value[0], str)
    return Field(value, GGUFValueType.ARRAY, GGUFValueType.STRING if texts else GGUFValueType.INT32)


def is_gguf(path: Path) -> bool:
    """Whether the path is a file with GGUF's magic number."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read_gguf(path: Path) -> Gguf:
    """Read a file's metadata and memory-map its tensors. Raises ExportError for anything but a complete GGUF file."""
    if not path.exists():
        raise ExportError(f"{path} does not exist: give a folder or a GGUF file")
    if not is_gguf(path):
        raise ExportError(f"{path} is not a GGUF file: give a .gguf file, or a folder with config.json and weights")
    try:
        head = read_head(path)
        fields = dict(head.entries)
        mapped = np.memmap(path, mode="r")
        tensors = [_tensor(mapped, tensor) for tensor in head.tensors]
    except (ValueError, KeyError, OSError, BadHead) as error:
        raise ExportError(f"{path} is damaged or cut short ({error}): fetch it again") from error
    if _ARCHITECTURE not in fields:
        raise ExportError(f"{path} names no {_ARCHITECTURE}: it is not a model")
    if "split.count" in fields and fields["split.count"].value > 1:
        raise ExportError(f"{path} is one part of a split model: join the parts with llama-gguf-split --merge first")
    architecture = str(fields.pop(_ARCHITECTURE).value)
    return Gguf(architecture, fields, tensors)


def _tensor(mapped: NDArray[np.uint8], info: TensorInfo) -> Tensor:
    """A tensor in the mapped file. Raises ValueError if the file ends before it does."""
    kind = GGMLQuantizationType(info.kind)
    per_block, block = GGML_QUANT_SIZES[kind]
    row, *others = info.shape
    shape = (*reversed(others), row // per_block * block)  # in bytes
    data = mapped[info.offset : info.offset + prod(shape)].reshape(shape)
    return Tensor(info.name, data.view(_NUMBERS.get(kind, np.uint8)), kind)


def write_gguf(model: Gguf, destination: Path) -> None:
    """Write the model under a temporary name, then rename it to the destination. Raises ExportError."""
    if not destination.parent.is_dir():
        raise ExportError(f"the folder {destination.parent} does not exist: create it first")
    if destination.is_dir():
        raise ExportError(f"{destination} is a folder: give the name of the file to write")
    temporary = destination.with_name(f"{destination.name}.{secrets.token_hex(4)}.part")
    writer = GGUFWriter(temporary, model.architecture)
    try:
        for name, field in model.fields.items():
            if field.kind != GGUFValueType.ARRAY or field.value:  # the format has no type for an empty array
                item = None if field.item is None else GGUFValueType(field.item)
                writer.add_key_value(name, field.value, GGUFValueType(field.kind), item)
        if alignment := model.fields.get("general.alignment"):
            writer.data_alignment = int(alignment.value)
        for tensor in model.tensors:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(temporary, destination)
    except OSError as error:
        raise ExportError(f"could not write {destination}: {error.strerror or error}") from error
    finally:
        writer.close()
        temporary.unlink(missing_ok=True)
