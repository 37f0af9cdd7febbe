"""Reads the head of a GGUF file: what it states of its model, and where its tensors lie; not the weights.

A head of 150,000 tokens takes a third of a second, and some 8 MB, so that a file on the hub is judged by a part of it.
The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpair.hub.cache import HubFile, Listing
from specpair.hub.errors import BadHead
from specpair.hub.repository import Hub

FIRST = 1 << 20  # bytes that are read at first
STEP = 32 << 10  # bytes that are read on, at least: few enough that hardly more is fetched than the head
_MOST_AHEAD = 4 << 20  # bytes that are read on by an estimate, at most
_MOST = 512 << 20  # bytes of the longest head
_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))  # formats by kind
STRING, ARRAY = 8, 9  # kinds
_STRUCTS = {kind: struct.Struct(f"<{letter}") for kind, letter in _SCALARS.items()}
_U32, _U64 = _STRUCTS[4], _STRUCTS[10]


@dataclass(frozen=True, slots=True)
class Entry:
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


@dataclass(frozen=True, slots=True)
class GgufHead:
    """The head of a file. `size`: its bytes, up to the first tensor."""

    entries: Mapping[str, Entry]
    tensors: tuple[TensorInfo, ...]
    size: int

    def get(self, key: str) -> Any:
        """The value of a key of the metadata; None if the file lacks it."""
        entry = self.entries.get(key)
        return None if entry is None else entry.value

    def stated(self, key: str) -> Any:
        """The value of a key under the architecture's name, such as `block_count`; None if the file lacks it."""
        return self.get(f"{self.get('general.architecture')}.{key}")

    def tensor_bytes(self, size: int) -> dict[str, int]:
        """The bytes of each tensor by its name, padding included, in a file of `size` bytes."""
        placed = sorted(self.tensors, key=lambda each: each.offset)
        ends = [*(each.offset for each in placed[1:]), size]
        return {each.name: end - each.offset for each, end in zip(placed, ends, strict=True)}


def read_head(path: Path) -> GgufHead:
    """The head of a file on this machine. Raises BadHead, and OSError."""
    with path.open("rb") as file:

        def read(begin: int, count: int) -> bytes:
            file.seek(begin)
            return file.read(count)

        return _read(read, path.stat().st_size, str(path))


def fetch_head(hub: Hub, listing: Listing, file: HubFile) -> GgufHead:
    """The head of a file on the hub, of which no more is read. Raises BadHead, and what `Hub.read` raises."""
    return _read(lambda begin, count: hub.read(listing, file, begin, count), file.size, file.path)


def _read(read: Callable[[int, int], bytes], size: int, name: str) -> GgufHead:
    """The head of a file of `size` bytes. `read`: gives bytes from a place on, as many as are asked for."""
    try:
        return _Parser(read, size).head()
    except _Wrong as error:
        raise BadHead(f"{name} is no GGUF file that can be read: {error}") from None


class _Wrong(Exception):
    """What is wrong with the bytes."""


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
        self._fit(tensors, 24)
        self._fit(entries, 13)
        metadata = {self._string(): self._entry() for _ in range(entries)}
        alignment = metadata["general.alignment"].value if "general.alignment" in metadata else 32
        if type(alignment) is not int or alignment < 1:
            raise _Wrong(f"its general.alignment is {alignment!r}")
        infos = [self._tensor() for _ in range(tensors)]
        begin = -(-self._at // alignment) * alignment
        placed = (TensorInfo(name, shape, kind, begin + offset) for name, shape, kind, offset in infos)
        return GgufHead(metadata, tuple(placed), begin)

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, dimensions = self._string(), self._scalar(_U32)
        if dimensions > 8:
            raise _Wrong(f"its tensor {name!r} has {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}Q", self._bytes(8 * dimensions))
        return name, shape, self._scalar(_U32), self._scalar(_U64)

    def _entry(self) -> Entry:
        kind = self._scalar(_U32)
        if kind == STRING:
            return Entry(self._string(), kind)
        if kind != ARRAY:
            return Entry(self._scalar(self._known(kind)), kind)
        item, count = self._scalar(_U32), self._scalar(_U64)
        if item == STRING:
            return Entry(self._strings(count), kind, item)
        width = self._known(item).size
        self._fit(count, width)
        return Entry(list(struct.unpack(f"<{count}{_SCALARS[item]}", self._bytes(count * width))), kind, item)

    def _known(self, kind: int) -> struct.Struct:
        if kind not in _STRUCTS:
            raise _Wrong(f"it has an entry of the unknown type {kind}")
        return _STRUCTS[kind]

    def _strings(self, count: int) -> list[str]:
        """The strings of an array: many thousands, so that nothing is called for each."""
        self._fit(count, 8)
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
        """Read on, if fewer than `count` bytes are here. Raises _Wrong if the file has fewer."""
        self._fit(count, 1)
        if self._at + count > len(self._data):
            self._grow(self._at + count)

    def _grow(self, end: int) -> None:
        """Read on, to `end` or somewhat behind it."""
        if end > _MOST:
            raise _Wrong(f"its head is longer than {_MOST >> 20} MiB")
        here = len(self._data)
        self._data += self._read(here, max(end - here, STEP))
        if len(self._data) < end:
            raise _Wrong("it ends within its head: it is cut short, fetch it again")

    def _fit(self, count: int, width: int) -> None:
        """Raises _Wrong if `count` items of at least `width` bytes do not fit into the file."""
        if self._at + count * width > self._size:
            raise _Wrong(
                f"it has {self._size} bytes, and its head needs more: it is cut short or damaged, fetch it again"
            )
