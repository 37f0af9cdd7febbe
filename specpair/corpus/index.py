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

import hashlib
import json
import mmap
import os
import secrets
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specpair.corpus.files import UNREADABLE, FoundFile, Skipped, files_of, text_of, unreadable
from specpair.corpus.suffix_array import LONGEST, WIDTH, SuffixArray, as_bytes, joined, sorted_positions
from specpair.drafters.byte_pairs import BytePairs
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.shared_files import lock, replacing

SEGMENT = 8_000_000  # tokens that are sorted at once, about: some seconds, and 30 bytes of memory for each
# With a bound: share of its time to look for files, seconds to sort a token, most tokens that are sorted anew.
_TO_FIND, _SORTING, _SORTED_SOON = 0.4, 1e-6, 200_000
_FIRST_PAUSE = 2.0  # seconds until what is done is published for the first time, and then twice as long each time
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

    @classmethod
    def of(cls, root: Path, vocabulary: Vocabulary, cache: Path) -> "Store":
        """That of a file or folder, in the tokens of a vocabulary, below the folder `cache`.

        Vocabularies that differ in control tokens or unused ids share it, as a target's and its draft model's do.
        """
        name = vocabulary.fingerprint.ordinary[:16]
        return cls(cache / name / hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16])

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(each.stat().st_size for each in self.folder.iterdir())

    @contextmanager
    def writing(self, *, wait: bool = True) -> Iterator[bool]:
        """A context in which no other process writes. `wait`: for another writer; else it yields False. Raises
        OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "ab") as held:
            yield lock(held.fileno(), wait=wait)

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


def bring_up_to_date(
    store: Store,
    root: Path,
    encode: Encode,
    *,
    most: int = SEGMENT,
    seconds: float | None = None,
    report: Callable[[float], object] = lambda _: None,
    tell: Callable[[Skipped], object] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Index the changed files in `root`, the latest first. Returns whether the index is complete.

    Readers see what is done now and then. Little is lost when the process ends, nothing after Ctrl-C.

    `encode`: the tokens of a text.
    `most`: tokens of a segment, about.
    `seconds`: the time for it, about, after which the rest is left to the next call. Then nothing is done if another
        process writes the index. None: all the time that it takes.
    `report`: takes the share of the new files' bytes that was read.
    `tell`: takes each file and folder that cannot be read.
    `clock`: in seconds.

    Raises OSError where the store cannot be written.
    """
    with store.writing(wait=seconds is None) as alone:
        return alone and _Indexing(store, encode, most, seconds, report=report, tell=tell, clock=clock).run(root)


@dataclass(eq=False)
class _Indexing:
    store: Store
    encode: Encode
    most: int
    seconds: float | None
    report: Callable[[float], object]
    tell: Callable[[Skipped], object]
    clock: Callable[[], float]
    kept: list[Segment] = field(default_factory=list)  # what readers see
    skipped: Counter[str] = field(default_factory=Counter)
    found: set[FoundFile] = field(default_factory=set)
    new: dict[str, FoundFile] = field(default_factory=dict)  # files that are not in a segment
    held: list[_Read] = field(default_factory=list)  # files that are in none yet, with their tokens
    size: int = 0  # tokens of these

    def run(self, root: Path) -> bool:
        begun, seconds = self.clock(), inf if self.seconds is None else self.seconds
        self.kept = [each for name in self.store.state().segments if (each := self.store.segment(name)) is not None]
        whole = self._find(root, begun + _TO_FIND * seconds)
        for file in (file for segment in self.kept for file in segment.files if file in self.found):
            self.new.pop(file.path, None)
        largest = self.most if self.seconds is None else min(self.most, _SORTED_SOON)
        stale = [each for each in self.kept if whole and not self.found.issuperset(each.files)]
        anew = [each for each in stale if self.seconds is None or each.size <= largest]
        if whole and (self.new or anew):  # what comes fills up segments with room, too
            anew += [each for each in self.kept if each not in stale and each.size < largest // 2]
        try:
            self._take(anew)
            if self._read(begun + seconds):
                self._take([each for each in self.kept if each.size < self.most // 2])
        finally:  # also after Ctrl-C
            self._put()
        return whole and not self.new and all(each in anew for each in stale)

    def _find(self, root: Path, until: float) -> bool:
        """Look for files. Returns whether all were found in time."""
        whole = True
        for each in files_of(root):
            if isinstance(each, Skipped):
                self._skip(each)
            else:
                self.found.add(each)
            if self.clock() >= until:
                whole = False
                break
        self.new = {each.path: each for each in sorted(self.found, key=lambda each: (-each.changed, each.path))}
        return whole

    def _skip(self, skipped: Skipped) -> None:
        self.skipped[skipped.reason] += 1
        if skipped.reason == UNREADABLE:
            self.tell(skipped)

    def _take(self, segments: Sequence[Segment]) -> None:
        """Hold the unchanged files of some segments, in place of these."""
        for segment in segments:
            texts = self.store.texts(segment)
            self.kept.remove(segment)
            for file, text in zip(segment.files, texts, strict=True):
                if file in self.found:
                    self._hold(file, text)

    def _read(self, until: float) -> bool:
        """Read and tokenize the new files. Returns whether what is done was published on the way.

        A file without text is stored with no tokens, so that only a change rereads it.
        """
        left = total = sum(file.size for file in self.new.values())
        pause, due = _FIRST_PAUSE, self.clock() + _FIRST_PAUSE
        for path, file in [*self.new.items()]:
            if self.clock() + _SORTING * self.size >= until:
                break
            try:
                text = text_of(path)
            except OSError as error:
                self._skip(unreadable(error))
            else:
                self._hold(file, np.asarray([] if text is None else self.encode(text), np.uint32))
            del self.new[path]
            left -= file.size
            self.report(1.0 - left / total)
            if self.seconds is None and self.clock() >= due:
                self._put()
                pause *= 2.0  # so that all these parts together are sorted once more at most
                due = self.clock() + pause
        return pause > _FIRST_PAUSE

    def _hold(self, file: FoundFile, text: NDArray[np.uint32]) -> None:
        self.held.append((file, text))
        self.size += len(text)
        if self.size >= self.most:
            self._put()

    def _put(self) -> None:
        """Put what is held into a segment, and publish the present state."""
        if self.held:
            files, texts = zip(*self.held, strict=True)
            self.kept.append(self.store.add(files, texts))
            self.held, self.size = [], 0
        tokens = [count for each in self.kept for count in each.tokens]
        binary = tokens.count(0)
        self.store.put(
            IndexState(
                segments=[each.name for each in self.kept],
                files=len(tokens) - binary,
                tokens=sum(tokens),
                waiting=len(self.new),
                skipped=dict(self.skipped) | ({"binary": binary} if binary else {}),
            )
        )


def write_vocabulary(vocabulary: Vocabulary, path: Path) -> None:
    """Write the text tokens of a vocabulary, unless the file exists. Raises OSError."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(json.dumps([piece.decode("latin-1") for piece in _text_pieces(vocabulary)]).encode())


def encoder(vocabulary: Vocabulary | Sequence[bytes]) -> Encode:
    """Encodes files in the tokens of a vocabulary, or of the bytes of its text tokens."""
    pieces = _text_pieces(vocabulary) if isinstance(vocabulary, Vocabulary) else vocabulary
    return BytePairs(dict(enumerate(pieces)), _REMEMBERED).encode


def _text_pieces(vocabulary: Vocabulary) -> list[bytes]:
    kinds = zip(vocabulary.pieces, vocabulary.kinds, strict=True)
    return [piece if kind is Kind.ORDINARY else b"" for piece, kind in kinds]


def main() -> None:
    with suppress(AttributeError, OSError):  # every other process goes first
        os.nice(19)
    with suppress(AttributeError, OSError):  # Linux: only where a core has nothing else to do
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    vocabulary, *pairs = sys.argv[1:]
    pieces = [piece.encode("latin-1") for piece in json.loads(Path(vocabulary).read_bytes())]
    encode = encoder(pieces)
    for store, root in zip(pairs[::2], pairs[1::2], strict=True):
        bring_up_to_date(Store(Path(store)), Path(root), encode)


if __name__ == "__main__":
    main()
