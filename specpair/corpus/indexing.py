"""Brings the index of a folder up to date: reads, tokenizes and sorts what is new, and drops what is gone.

The indexing process encodes by byte pairs, from the bytes of a vocabulary's text tokens, which are handed to it in a
file. That needs no model and no verifier, to which a text of the user's is never sent. About one token in 1,500 differs
from what the model's own tokenizer makes; there, a draft is worse.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specpair.corpus.files import FoundFile, Skipped, files_of, text_of
from specpair.corpus.store import IndexState, Segment, Store
from specpair.drafters.byte_pairs import BytePairs
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.shared_files import replacing

SEGMENT = 8_000_000  # tokens of a segment that is sorted at once, about
_FAN = 8  # segments of about a size that are merged: a token of a text is looked up in each segment that there is
_MOST = (1 << 31) - 1  # tokens of a segment
_FIRST = 16  # of an index that holds nothing yet, the part of a segment that readers see before it is full
_REMEMBERED = 1 << 18  # words whose tokens are kept in memory

Encode = Callable[[str], Sequence[int]]
_Read = tuple[FoundFile, NDArray[np.uint32]]


def bring_up_to_date(store: Store, root: Path, encode: Encode, most: int = SEGMENT) -> None:
    """Index what has changed in `root`. Readers see each segment when it is there.

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
        self._stale: list[Segment] = []  # those of them whose texts are still to be read, to be sorted anew
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
        known = [each for name in self._store.state().segments if (each := self._store.segment(name)) is not None]
        self._kept = [*known]
        for file in (file for segment in known for file in segment.files if file in self._found):
            self._new.pop(file.path, None)
        for each in (each for each in known if not self._found.issuperset(each.files)):
            if self._level(each):
                self._merge([each])
            else:
                self._stale.append(each)
        if self._new or self._stale:  # what comes fills up segments with room, too
            self._stale += [each for each in known if each not in self._stale and each.size < self._most // 2]
        files, texts, held = list[FoundFile](), list[NDArray[np.uint32]](), 0
        first: Segment | None = None
        for file, text in chain(self._as_they_were(), self._tokenized()):
            files.append(file)
            texts.append(text)
            held += len(text)
            if not self._kept and held >= self._most // _FIRST:
                first = self._put(files, texts)
            if held >= self._most:
                self._put(files, texts, instead_of=first)
                files, texts, held, first = [], [], 0, None
        if files:
            self._put(files, texts, instead_of=first)
        else:
            self._publish()

    def _as_they_were(self) -> Iterator[_Read]:
        """The files of stale segments that are as they were. A segment is dropped when it has been read."""
        while self._stale:
            segment = self._stale.pop()
            texts = self._store.texts(segment)
            self._kept.remove(segment)
            yield from (each for each in zip(segment.files, texts, strict=True) if each[0] in self._found)

    def _tokenized(self) -> Iterator[_Read]:
        """The new files. One without a text is kept with no tokens, so that it is not read again until it changes."""
        for path, file in [*self._new.items()]:
            text = text_of(path)
            del self._new[path]
            yield file, np.asarray([] if text is None else self._encode(text), np.uint32)

    def _put(
        self, files: Sequence[FoundFile], texts: Sequence[NDArray[np.uint32]], *, instead_of: Segment | None = None
    ) -> Segment:
        added = self._store.add([*files], [*texts])
        self._kept = [*(each for each in self._kept if each is not instead_of), added]
        self._publish()
        self._merge_alike(self._level(added))
        return added

    def _merge_alike(self, level: int) -> None:
        """Merge the segments of a level if there are enough; the one that comes of them is of the next level."""
        alike = [each for each in self._kept if self._level(each) == level and each not in self._stale]
        if len(alike) >= _FAN and sum(len(each.files) + each.size for each in alike) <= _MOST:
            self._merge(alike)
            self._merge_alike(level + 1)

    def _level(self, segment: Segment) -> int:
        """How often its tokens were merged, about."""
        return max(0, round(log(max(1, segment.size) / self._most, _FAN)))

    def _merge(self, segments: Sequence[Segment]) -> None:
        """Put one segment in the place of several, without files that are gone."""
        one = self._store.merged(segments, self._found)
        self._kept = [*(each for each in self._kept if each not in segments), one]
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
    """Write the text tokens of a vocabulary, unless the file is there. Raises OSError."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = zip(vocabulary.pieces, vocabulary.kinds, strict=True)
    pieces = [piece.decode("latin-1") if kind is Kind.ORDINARY else "" for piece, kind in kinds]
    with replacing(path) as file:
        file.write(json.dumps(pieces).encode())


def read_encoder(path: Path) -> Callable[[str], Sequence[int]]:
    """What encodes texts for the vocabulary. Raises OSError and ValueError."""
    pieces = [piece.encode("latin-1") for piece in json.loads(path.read_bytes())]
    return BytePairs(dict(enumerate(pieces)), _REMEMBERED).encode
