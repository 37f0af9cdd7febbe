"""Reads safetensors files with ``numpy`` and ``gguf``, without the library safetensors."""

from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf.utility import LocalTensor, SafetensorsLocal
from numpy.typing import NDArray

from models.errors import ExportError

_DTYPES: Final = {"F16": "<f2", "F32": "<f4", "BF16": "<u2"}


def read_tensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """Read every tensor of the file as float32, by name.

    Raises ExportError if the file is missing, damaged, or holds other types than F16, BF16 and F32.
    """
    try:
        return {name: _decode(tensor, path) for name, tensor in SafetensorsLocal(path).tensors.items()}
    except FileNotFoundError:
        raise ExportError(f"{path} does not exist: expected the weights there in safetensors format") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise ExportError(f"{path} is not a readable safetensors file ({error}): fetch or write it again") from error


def _decode(tensor: LocalTensor, path: Path) -> NDArray[np.float32]:
    if tensor.dtype not in _DTYPES:
        raise ExportError(f"{path} holds weights of type {tensor.dtype}: only F16, BF16 and F32 can be converted")
    if tensor.data_range.offset + tensor.data_range.size > path.stat().st_size:
        raise ValueError("it ends before its data does")
    raw: NDArray[Any] = tensor.mmap_bytes().view(_DTYPES[tensor.dtype]).reshape(tensor.shape)
    if tensor.dtype == "BF16":  # NumPy has no such type: it is the upper half of a float32
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32)
