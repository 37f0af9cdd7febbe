"""The index of a folder: reads, tokenizes and sorts new files, and drops deleted ones.

The folder that keeps an index has segments, and a list of them that is replaced as a whole. A segment holds some files,
and never changes: where a file of it has changed, another segment takes its place. So readers need no lock, and a
process that dies leaves nothing half done. `index.json` lists the segments in use, with what was found; `NAME.segment`
is what a reader maps; `NAME.json` lists the files in it, which only the indexing reads.

A process of its own does the indexing, with whatever time others leave:

    python -m specpair.corpus.index VOCABULARY [STORE ROOT …]

`VOCABULARY` is a file of `write_vocabulary`: the bytes of a vocabulary's text tokens. Texts are encoded from them by
byte pairs, which needs no model and no verifier, to which a text of the user's is never sent. About one token in 1,500
differs from what the model's own tokenizer makes; there, a draft is worse.
"""

import json
import mmap
import os
import secrets
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specpair.corpus.files import FoundFile, Skipped, files_of, text_of
from specpair.corpus.suffix_array import LONGEST, WIDTH, SuffixArray, as_bytes, joined, sorted_positions
from specpair.drafters.byte_pairs import BytePairs
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.shared_files import lock, replacing

SEGMENT = 8_000_000  # tokens that are sorted at once, about: some seconds, and 30 bytes of memory for each
_REMEMBERED = 1 << 18  # words whose tokens are kept in memory
_FORMAT = f"2 {sys.byteorder}"
_INDEX = "index.json"
_HEADER = 8  # bytes of a segment, the number of its tokens
_WRONG = (OSError, ValueError, KeyError, TypeError)  # what a file of another format, or a broken one, raises

Encode = Callable[[str], Sequence[int]]
_Read = tuple[FoundFile, NDArray[np.uint32]]


@dataclass(frozen=True, kw_only=True)
class IndexState:
    """The contents of a folder's index, and its progress."""

    segments: Sequence[str] = ()  # their names
    files: int = 0
    tokens: int = 0
    waiting: int = 0  # files that are still to be indexed
    skipped: Mapping[str, int] = field(default_factory=dict)  # files that are left out, by reason
    format: str = _FORMAT


@dataclass(frozen=True)
class Segment:
    """The files in a segment with their token counts, in the order of their tokens."""

    name: str
    files: Sequence[FoundFile]
    tokens: Sequence[int]

    @property
    def size(self) -> int:
        """Tokens in all."""
        return sum(self.tokens)


class Store:
    """An index folder, which need not exist yet. Any process may read; the holder of `writing` writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A context in which no other process writes. Waits for other writers. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "ab") as held:
            lock(held.fileno(), wait=True)
            yield

    def state(self) -> IndexState:
        """The contents of the index; empty if there is no index or its format is another one."""
        with suppress(*_WRONG):
            state = IndexState(**json.loads((self.folder / _INDEX).read_bytes()))
            if state.format == _FORMAT:
                return state
        return IndexState()

    def changed(self) -> int:
        """A number that changes whenever the index is written."""
        try:
            return (self.folder / _INDEX).stat().st_mtime_ns
        except OSError:
            return 0

    def put(self, state: IndexState) -> None:
        """Publish this state to readers, and delete the segments that are not in it. Raises OSError."""
        with replacing(self.folder / _INDEX) as file:
            file.write(json.dumps(asdict(state)).encode())
        kept = {f"{name}.{kind}" for name in state.segments for kind in ("segment", "json")}
        for path in self.folder.iterdir():
            if path.name not in kept and path.name not in (_INDEX, "lock"):
                with suppress(OSError):  # still mapped, on Windows: a later call deletes it
                    path.unlink()

    def add(self, files: Sequence[FoundFile], texts: Sequence[NDArray[np.uint32]]) -> Segment:
        """Write a new segment of these files, whose tokens are `texts`. Readers see the segment once it is `put`."""
        backwards = joined(texts)
        segment = Segment(secrets.token_hex(8), files, [len(text) for text in texts])
        with replacing(self.folder / f"{segment.name}.segment") as file:
            file.write(np.array([len(backwards)], np.uint64).tobytes())
            file.write(as_bytes(backwards))
            file.write(sorted_positions(backwards).data)
        with replacing(self.folder / f"{segment.name}.json") as file:
            file.write(json.dumps([*zip(segment.files, segment.tokens, strict=True)]).encode())
        return segment

    def segment(self, name: str) -> Segment | None:
        """The files in a segment; None if it is broken."""
        with suppress(*_WRONG):
            self.searched(name)
            listed = json.loads((self.folder / f"{name}.json").read_bytes())
            return Segment(name, [FoundFile(*file) for file, _ in listed], [int(count) for _, count in listed])
        return None

    def texts(self, segment: Segment) -> list[NDArray[np.uint32]]:
        """The tokens of the files in a segment. Raises OSError."""
        data = np.fromfile(self.folder / f"{segment.name}.segment", ">u4", offset=_HEADER)
        ends = np.cumsum([0, *(count + 1 for count in segment.tokens)])  # counted from the end: they stand backwards
        last = int(ends[-1])
        forwards = data[: last + 1][::-1].astype(np.uint32)
        return [forwards[begin + 1 : end] for begin, end in pairwise(ends)]

    def searched(self, name: str) -> SuffixArray:
        """The suffix array of a segment. Raises OSError, and ValueError for a broken segment."""
        with open(self.folder / f"{name}.segment", "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        count = int.from_bytes(data[:_HEADER], sys.byteorder)
        begin = _HEADER + WIDTH * (count + LONGEST)
        if len(data) != begin + WIDTH * count or array("i").itemsize != WIDTH:
            raise ValueError(f"{name}: the index of a corpus is broken")
        return SuffixArray(data, _HEADER, memoryview(data)[begin:].cast("i"))


def bring_up_to_date(store: Store, root: Path, encode: Encode, most: int = SEGMENT) -> None:
    """Index the changed files in `root`. Readers see each segment as soon as it is complete.

    `encode`: the tokens of a text.
    `most`: tokens of a segment, about.

    Raises OSError where the store cannot be written.
    """
    with store.writing():
        _Indexing(store, root, encode, most).run()


class _Indexing:
    def __init__(self, store: Store, root: Path, encode: Encode, most: int) -> None:
        self._store, self._encode, self._most = store, encode, most
        self._kept: list[Segment] = []  # what readers see
        self._skipped: Counter[str] = Counter()
        self._found: set[FoundFile] = set()
        self._new: dict[str, FoundFile] = {}  # files that are not in a segment
        for each in files_of(root):
            if isinstance(each, Skipped):
                self._skipped[each.reason] += 1
            else:
                self._found.add(each)
                self._new[each.path] = each

    def run(self) -> None:
        self._kept = [each for name in self._store.state().segments if (each := self._store.segment(name)) is not None]
        for file in (file for segment in self._kept for file in segment.files if file in self._found):
            self._new.pop(file.path, None)
        stale = [each for each in self._kept if not self._found.issuperset(each.files)]
        if self._new or stale:  # what comes fills up segments with room, too
            stale += [each for each in self._kept if each not in stale and each.size < self._most // 2]
        files, texts, held = list[FoundFile](), list[NDArray[np.uint32]](), 0
        for file, text in chain(self._as_they_were(stale), self._tokenized()):
            files.append(file)
            texts.append(text)
            held += len(text)
            if held >= self._most:
                self._put(files, texts)
                files, texts, held = [], [], 0
        if files:
            self._put(files, texts)
        self._publish()

    def _as_they_were(self, stale: Sequence[Segment]) -> Iterator[_Read]:
        """The unchanged files of stale segments. A segment is dropped when it has been read."""
        for segment in stale:
            texts = self._store.texts(segment)
            self._kept.remove(segment)
            yield from (each for each in zip(segment.files, texts, strict=True) if each[0] in self._found)

    def _tokenized(self) -> Iterator[_Read]:
        """The new files. A file without text is stored with no tokens, so that only a change rereads it."""
        for path, file in [*self._new.items()]:
            text = text_of(path)
            del self._new[path]
            yield file, np.asarray([] if text is None else self._encode(text), np.uint32)

    def _put(self, files: Sequence[FoundFile], texts: Sequence[NDArray[np.uint32]]) -> None:
        self._kept.append(self._store.add(files, texts))
        self._publish()

    def _publish(self) -> None:
        tokens = [count for each in self._kept for count in each.tokens]
        binary = tokens.count(0)
        self._store.put(
            IndexState(
                segments=[each.name for each in self._kept],
                files=len(tokens) - binary,
                tokens=sum(tokens),
                waiting=len(self._new),
                skipped=dict(self._skipped) | ({"binary": binary} if binary else {}),
            )
        )


def write_vocabulary(vocabulary: Vocabulary, path: Path) -> None:
    """Write the text tokens of a vocabulary, unless the file exists. Raises OSError."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = zip(vocabulary.pieces, vocabulary.kinds, strict=True)
    pieces = [piece.decode("latin-1") if kind is Kind.ORDINARY else "" for piece, kind in kinds]
    with replacing(path) as file:
        file.write(json.dumps(pieces).encode())


def main() -> None:
    with suppress(AttributeError, OSError):  # every other process goes first
        os.nice(19)
    with suppress(AttributeError, OSError):  # Linux: only where a core has nothing else to do
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    vocabulary, *pairs = sys.argv[1:]
    pieces = [piece.encode("latin-1") for piece in json.loads(Path(vocabulary).read_bytes())]
    encode = BytePairs(dict(enumerate(pieces)), _REMEMBERED).encode
    for store, root in zip(pairs[::2], pairs[1::2], strict=True):
        bring_up_to_date(Store(Path(store)), Path(root), encode)


if __name__ == "__main__":
    main()
