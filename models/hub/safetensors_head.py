"""Reads the head of a safetensors file: the names, types and shapes of its tensors; not the weights.

The format: https://huggingface.co/docs/safetensors.
"""

import json
import math
import struct
from collections.abc import Callable
from typing import NamedTuple

from models.hub.errors import BadHead

_MOST = 100 << 20  # bytes of the longest head, as the format limits it


class StoredTensor(NamedTuple):
    """`kind`: as the file names it, such as BF16. `size`: bytes."""

    name: str
    kind: str
    numbers: int
    size: int


def read_tensors(read: Callable[[int, int], bytes], name: str) -> list[StoredTensor]:
    """The tensors of a file. `read`: gives bytes from a place on, as many as are asked for. Raises BadHead."""
    begin = read(0, 8)
    length = struct.unpack("<Q", begin)[0] if len(begin) == 8 else 0
    if not 0 < length <= _MOST:
        raise BadHead(f"{name} is no file of safetensors that can be read: its head would have {length} bytes")
    try:
        listed = json.loads(read(8, length))
        listed.pop("__metadata__", None)
        return [
            StoredTensor(each, at["dtype"], math.prod(at["shape"]), at["data_offsets"][1] - at["data_offsets"][0])
            for each, at in listed.items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise BadHead(f"{name} is no file of safetensors that can be read: {error!r}") from None
