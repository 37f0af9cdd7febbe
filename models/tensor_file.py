"""Reads and writes safetensors files with NumPy alone.

The format is an eight-byte little-endian length, a JSON header of that length (per tensor: dtype, shape and the byte
range) and the raw bytes (https://huggingface.co/docs/safetensors). That is simple enough without a dependency.
bfloat16, for which NumPy has no type, is read as float32.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from models.errors import ExportError

_DTYPES: Final = {"F16": "<f2", "F32": "<f4", "BF16": "<u2"}


def read_tensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """Read every tensor of the file as float32, by name.

    Raises ExportError if the file is missing, damaged, or holds other types than F16, BF16 and F32.
    """
    try:
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header: dict[str, Any] = json.loads(content[8 : 8 + length])
        start = 8 + length
        return {name: _decode(entry, content, start, path) for name, entry in header.items() if name != "__metadata__"}
    except FileNotFoundError:
        raise ExportError(f"{path} does not exist: expected the weights there in safetensors format") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise ExportError(f"{path} is not a readable safetensors file ({error}): fetch or write it again") from error


def write_tensors(path: Path, tensors: Mapping[str, NDArray[np.float16]]) -> None:
    """Write the tensors as float16, in order of name."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, data in sorted(tensors.items()):
        header[name] = {"dtype": "F16", "shape": list(data.shape), "data_offsets": [offset, offset + data.nbytes]}
        offset += data.nbytes
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)  # aligns the data for readers that map the file
    with path.open("wb") as out:
        out.write(len(encoded).to_bytes(8, "little") + encoded)
        for _, data in sorted(tensors.items()):
            out.write(np.ascontiguousarray(data, dtype="<f2").tobytes())


def _decode(entry: dict[str, Any], content: bytes, start: int, path: Path) -> NDArray[np.float32]:
    if entry["dtype"] not in _DTYPES:
        raise ExportError(f"{path} holds weights of type {entry['dtype']}: only F16, BF16 and F32 can be converted")
    first, last = entry["data_offsets"]
    if not 0 <= first <= last <= len(content) - start:
        raise ValueError("it ends before its data does")
    raw = np.frombuffer(content[start + first : start + last], dtype=_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    if entry["dtype"] == "BF16":  # the upper half of a float32
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32)
