"""The folder that keeps the index of a folder of files: segments, and a list of them that is replaced as a whole.

A segment holds some files. It never changes: where a file of it has changed, another segment takes its place. So
readers need no lock, and a process that dies leaves nothing half done. `index.json` lists the segments in use, with
what was found; `NAME.segment` is what a reader maps; `NAME.json` lists the files in it, which only the indexing reads.
"""

import json
import mmap
import secrets
import sys
import zlib
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specpair.corpus.files import FoundFile
from specpair.corpus.merging import Merged, merged
from specpair.corpus.suffix_array import LONGEST, WIDTH, SuffixArray, as_bytes, joined, sorted_places
from specpair.shared_files import lock, replacing

_FORMAT = f"1 {sys.byteorder}"
_INDEX = "index.json"
_HEADER = 8  # bytes of a segment, the number of its tokens
_BLOCK = 1 << 20  # bytes that are read at once
_WRONG = (OSError, ValueError, KeyError, TypeError)  # what a file of another format, or a broken one, raises


@dataclass(frozen=True, kw_only=True)
class IndexState:
    """What the index of a folder holds, and how far it is."""

    segments: Sequence[str] = ()  # their names
    files: int = 0
    tokens: int = 0
    waiting: int = 0  # files that are still to be indexed
    skipped: Mapping[str, int] = field(default_factory=dict)  # files that are left out, by reason
    format: str = _FORMAT


@dataclass(frozen=True)
class Segment:
    """The files in a segment, and how many tokens each has, in the order of their tokens."""

    name: str
    files: Sequence[FoundFile]
    tokens: Sequence[int]

    @property
    def size(self) -> int:
        """Tokens in all."""
        return sum(self.tokens)


class Store:
    """The folder, which need not exist yet. Any process may read it; one at a time writes, while it holds `writing`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A context in which no other process writes; it waits for its turn. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "ab") as held:
            lock(held.fileno(), wait=True)
            yield

    def state(self) -> IndexState:
        """What the index holds; nothing, if there is none or it is of another format."""
        try:
            told = json.loads((self.folder / _INDEX).read_bytes())
            state = IndexState(**told)
            return state if state.format == _FORMAT else IndexState()
        except _WRONG:
            return IndexState()

    def changed(self) -> int:
        """A number that differs when the index was written anew."""
        try:
            return (self.folder / _INDEX).stat().st_mtime_ns
        except OSError:
            return 0

    def put(self, state: IndexState) -> None:
        """Have readers see this state, and delete the segments that are not in it. Raises OSError."""
        with replacing(self.folder / _INDEX) as file:
            file.write(json.dumps(asdict(state)).encode())
        kept = {f"{name}.{kind}" for name in state.segments for kind in ("segment", "json")}
        for path in self.folder.iterdir():
            if path.name not in kept and path.name not in (_INDEX, "lock"):
                with suppress(OSError):  # still mapped, on Windows: a later call deletes it
                    path.unlink()

    def add(self, files: Sequence[FoundFile], texts: Sequence[NDArray[np.uint32]]) -> Segment:
        """A new segment of these files, of which `texts` are the tokens. Readers see it once it is `put`."""
        backwards = joined(texts)
        segment = Segment(secrets.token_hex(8), files, [len(text) for text in texts])
        self._write(segment, len(backwards), [as_bytes(backwards), sorted_places(backwards).data])
        return segment

    def merged(self, segments: Sequence[Segment], kept: Container[FoundFile]) -> Segment:
        """A new segment of what these have, without files that are not `kept`. Raises OSError and ValueError."""
        parts, files, tokens, at = list[Merged](), list[FoundFile](), list[int](), 0
        for each in segments:
            mapped, begin = self._mapped(each.name)
            data, places = memoryview(mapped)[_HEADER:begin], memoryview(mapped)[begin:]
            backwards = [*zip(each.files, each.tokens, strict=True)][::-1]
            keep = [file in kept for file, _ in backwards]
            parts.append(Merged(data, np.frombuffer(places, np.int32), [count for _, count in backwards], keep, at))
            at += parts[-1].count
            files += [file for (file, _), stays in zip(backwards, keep, strict=True) if stays]
            tokens += [count for (_, count), stays in zip(backwards, keep, strict=True) if stays]
        segment = Segment(secrets.token_hex(8), files[::-1], tokens[::-1])
        texts = (part for each in parts for part in each.data())
        self._write(segment, at, chain(texts, [bytes(WIDTH * LONGEST)], (places.data for places in merged(parts))))
        return segment

    def _write(self, segment: Segment, count: int, content: Iterable[bytes | memoryview]) -> None:
        """Write the files of a segment. `content`: data of `count` tokens, then the sorted places."""
        crc = 0
        with replacing(self.folder / f"{segment.name}.segment") as file:
            for data in chain([np.array([count], np.uint64).tobytes()], content):
                file.write(data)
                crc = zlib.crc32(data, crc)
        told = {"crc": crc, "files": list(zip(segment.files, segment.tokens, strict=True))}
        with replacing(self.folder / f"{segment.name}.json") as file:
            file.write(json.dumps(told).encode())

    def segment(self, name: str) -> Segment | None:
        """The files in a segment; None if it is broken."""
        try:
            told: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_bytes())
            files = [FoundFile(*each) for each, _ in told["files"]]
            crc = 0
            with open(self.folder / f"{name}.segment", "rb") as file:
                while data := file.read(_BLOCK):
                    crc = zlib.crc32(data, crc)
            if crc != told["crc"]:
                return None
            return Segment(name, files, [int(count) for _, count in told["files"]])
        except _WRONG:
            return None

    def texts(self, segment: Segment) -> list[NDArray[np.uint32]]:
        """The tokens of the files in a segment. Raises OSError."""
        data = np.fromfile(self.folder / f"{segment.name}.segment", ">u4", offset=_HEADER)
        ends = np.cumsum([0, *(count + 1 for count in segment.tokens)])  # counted from the end: they stand backwards
        last = int(ends[-1])
        forwards = data[: last + 1][::-1].astype(np.uint32)
        return [forwards[begin + 1 : end] for begin, end in pairwise(ends)]

    def searched(self, name: str) -> tuple[SuffixArray, int]:
        """A segment to search, and the bytes that it maps. Raises OSError and ValueError for one that is broken."""
        data, begin = self._mapped(name)
        return SuffixArray(data, _HEADER, memoryview(data)[begin:].cast("i")), len(data)

    def _mapped(self, name: str) -> tuple[mmap.mmap, int]:
        """The memory map of a segment, and where its places begin. Raises OSError and ValueError."""
        with open(self.folder / f"{name}.segment", "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        count = int.from_bytes(data[:_HEADER], sys.byteorder)
        begin = _HEADER + WIDTH * (count + LONGEST)
        if len(data) != begin + WIDTH * count or array("i").itemsize != WIDTH:
            raise ValueError(f"{name}: the index of a corpus is broken")
        return data, begin
