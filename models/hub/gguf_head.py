"""Reads the head of a GGUF file: its metadata and the layout of its tensors, without the weights.

A head of 150,000 tokens takes a third of a second, and some 8 MB, so that a file on the hub is judged by a part of it.
The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import BadHead
from models.hub.cache import HubFile, Listing
from models.hub.repository import Hub

FIRST = 1 << 20  # bytes that are read at first
STEP = 32 << 10  # bytes that are read on, at least: few enough that hardly more is fetched than the head
_MOST_AHEAD = 4 << 20  # bytes that are read on by an estimate, at most
_MOST = 128 << 20  # bytes of the longest head
_MOST_ENTRIES, _MOST_TENSORS, _MOST_ITEMS = 1 << 16, 1 << 17, 1 << 24  # items: of an array
_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))  # formats by kind
STRING, ARRAY = 8, 9  # kinds
_STRUCTS = {kind: struct.Struct(f"<{letter}") for kind, letter in _SCALARS.items()}
_U32, _U64 = _STRUCTS[4], _STRUCTS[10]
# ggml's types of tensors by number: the name, and how many numbers of a row are stored together, in how many bytes.
TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22)}
TYPES |= {7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110)}
TYPES |= {12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292)}
TYPES |= {16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50)}
TYPES |= {20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136)}
TYPES |= {24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8)}
TYPES |= {29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66)}
TYPES |= {39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18)}


@dataclass(frozen=True, slots=True)
class Field:
    """An entry of the metadata. `kind`: GGUF's number of its type. `item`: that of its items, if it is an array."""

    value: Any
    kind: int
    item: int | None = None


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor. `shape`: as GGUF has it, a row's length first. `kind`: ggml's number of its type.
    `offset`: where it begins in the file, in bytes."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def type_name(self) -> str:
        """The type's name, as in tags; a question mark for an unknown type."""
        return TYPES.get(self.kind, "?")[0]

    @property
    def end(self) -> int:
        """The offset of its end in the file; of its begin, if the type is unknown."""
        _, together, size = TYPES.get(self.kind, ("?", 1, 0))
        return self.offset + math.prod(self.shape) // together * size


@dataclass(frozen=True, slots=True)
class GgufHead:
    """The head of a file. `size`: its bytes, up to the first tensor. `file_size`: bytes of the file."""

    entries: Mapping[str, Field]
    tensors: tuple[TensorInfo, ...]
    size: int
    file_size: int

    def get(self, key: str) -> Any:
        """The value of a key of the metadata; None if the file lacks it."""
        entry = self.entries.get(key)
        return None if entry is None else entry.value

    def stated(self, key: str) -> Any:
        """The value of a key under the architecture's name, such as `block_count`; None if the file lacks it."""
        return self.get(f"{self.get('general.architecture')}.{key}")

    def tensor_bytes(self) -> dict[str, int]:
        """The bytes of each tensor by its name, padding included."""
        placed = sorted(self.tensors, key=lambda each: each.offset)
        ends = [*(each.offset for each in placed[1:]), self.file_size]
        return {each.name: end - each.offset for each, end in zip(placed, ends, strict=False)}  # none: no tensors


def read_head(path: Path) -> GgufHead:
    """The head of a file on this machine. Raises BadHead, and OSError."""
    with path.open("rb") as file:

        def read(begin: int, count: int) -> bytes:
            file.seek(begin)
            return file.read(count)

        return _read(read, path.stat().st_size, str(path))


def fetch_head(hub: Hub, listing: Listing, file: HubFile) -> GgufHead:
    """The head of a file on the hub. Fetches no more of it. Raises BadHead, and the errors of `Hub.read`."""
    return _read(lambda begin, count: hub.read(listing, file, begin, count), file.size, file.path)


def _read(read: Callable[[int, int], bytes], size: int, name: str) -> GgufHead:
    """The head of a file of `size` bytes. `read`: takes an offset and a count, returns bytes."""
    try:
        return _Parser(read, size).head()
    except _Cut as error:
        raise BadHead(f"{name} is {error.what}: fetch it again ({error})") from None
    except _Wrong as error:
        raise BadHead(f"{name} is no GGUF file that can be read: {error}: fetch it again, or another one") from None


class _Wrong(Exception):
    """The bytes are no valid head."""


class _Cut(_Wrong):
    """The bytes end too early."""

    def __init__(self, reason: str, what: str = "incomplete") -> None:
        super().__init__(reason)
        self.what = what


class _Parser:
    """Reads one value after the other. `_data`: the bytes of the file that were read so far."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read, self._size = read, size
        self._data, self._at = read(0, FIRST), 0

    def head(self) -> GgufHead:
        if self._bytes(4) != b"GGUF":
            raise _Wrong("it does not begin with the letters GGUF")
        version = self._scalar(_U32)
        if version not in (2, 3):
            big = int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3)
            raise _Wrong(
                "it is for machines of the other byte order" if big else f"its version is {version}, not 2 or 3"
            )
        tensors, entries = self._scalar(_U64), self._scalar(_U64)
        self._fit(tensors, 24, _MOST_TENSORS)
        self._fit(entries, 13, _MOST_ENTRIES)
        metadata: dict[str, Field] = {}
        for _ in range(entries):
            key = self._string()
            if key in metadata:
                raise _Wrong(f"it states {key!r:.99} twice")
            metadata[key] = self._entry()
        alignment = metadata["general.alignment"].value if "general.alignment" in metadata else 32
        if type(alignment) is not int or alignment < 1:
            raise _Wrong(f"its general.alignment is {alignment!r:.99}")
        infos = [self._tensor() for _ in range(tensors)]
        begin = -(-self._at // alignment) * alignment
        placed = {name: TensorInfo(name, shape, kind, begin + offset) for name, shape, kind, offset in infos}
        if len(placed) < tensors:
            raise _Wrong("it has two tensors of one name")
        end = max((tensor.end for tensor in placed.values()), default=begin)
        if end > self._size:
            raise _Cut(f"it has {self._size} of {end} bytes")
        return GgufHead(metadata, tuple(placed.values()), begin, self._size)

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, dimensions = self._string(), self._scalar(_U32)
        if dimensions > 4:
            raise _Wrong(f"its tensor {name!r:.99} has {dimensions} dimensions, not up to 4")
        shape = struct.unpack(f"<{dimensions}Q", self._bytes(8 * dimensions))
        kind, offset = self._scalar(_U32), self._scalar(_U64)
        if shape and shape[0] % TYPES.get(kind, ("?", 1, 0))[1]:
            raise _Wrong(f"its tensor {name!r:.99} has rows of {shape[0]} numbers, in {TYPES[kind][0]}")
        return name, shape, kind, offset

    def _entry(self) -> Field:
        kind = self._scalar(_U32)
        if kind == STRING:
            return Field(self._string(), kind)
        if kind != ARRAY:
            return Field(self._scalar(self._format(kind)), kind)
        item, count = self._scalar(_U32), self._scalar(_U64)
        if item == STRING:
            return Field(self._strings(count), kind, item)
        width = self._format(item).size
        self._fit(count, width, _MOST_ITEMS)
        return Field(list(struct.unpack(f"<{count}{_SCALARS[item]}", self._bytes(count * width))), kind, item)

    def _format(self, kind: int) -> struct.Struct:
        if kind not in _STRUCTS:
            raise _Wrong(f"it has an entry of the unknown type {kind}")
        return _STRUCTS[kind]

    def _strings(self, count: int) -> list[str]:
        """The strings of an array, read without a call for each of many thousands."""
        self._fit(count, 8, _MOST_ITEMS)
        length, found, first = _U64.unpack_from, list[str](), self._at
        while len(found) < count:
            data, at, whole = self._data, self._at, len(self._data) - 8
            while len(found) < count and at <= whole:
                begin = at + 8
                end = begin + length(data, at)[0]
                if end > len(data):
                    break
                found.append(data[begin:end].decode(errors="surrogateescape"))
                at = end
            self._at = at
            if len(found) < count:  # the others are as long as these, on average
                missing = (count - len(found)) * (at - first) // len(found) if found else 0
                self._grow(min(at + min(missing, _MOST_AHEAD), self._size))
                self._need(8)
                self._need(8 + length(self._data, at)[0])
        return found

    def _string(self) -> str:
        return self._bytes(self._scalar(_U64)).decode(errors="surrogateescape")

    def _scalar(self, form: struct.Struct) -> Any:
        return form.unpack(self._bytes(form.size))[0]

    def _bytes(self, count: int) -> bytes:
        self._need(count)
        begin, self._at = self._at, self._at + count
        return self._data[begin : self._at]

    def _need(self, count: int) -> None:
        """Read on until `count` bytes are available. Raises _Wrong if the file has fewer."""
        self._fit(count, 1)
        if self._at + count > len(self._data):
            self._grow(self._at + count)

    def _grow(self, end: int) -> None:
        """Read on, to `end` or a little further."""
        if end > _MOST:
            raise _Wrong(f"its head is longer than {_MOST >> 20} MiB")
        here = len(self._data)
        self._data += self._read(here, max(end - here, STEP))
        if len(self._data) < end:
            raise _Cut("it ends within its head")

    def _fit(self, count: int, width: int, most: int = _MOST) -> None:
        """Raises _Wrong for more than `most` items, or if `count` of `width` bytes do not fit into the file."""
        if self._at + count * width > self._size:
            raise _Cut(f"it has {self._size} bytes, and its head needs more", "damaged or incomplete")
        if count > most:
            raise _Wrong(f"its head has {count} items in one place, and {most} at most are read")
