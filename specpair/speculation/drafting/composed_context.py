"""A part of a long text that a draft model has read, in place of all of it: a sink, pieces and a window.

The sink is the text's first tokens, on which attention rests (Xiao et al., arXiv 2309.17453). The window is its last
ones. Where the text copies from outside of both, a draft model that has not read the source is wrong half of the time;
with the piece that is copied it is as often right as one that has read everything. The piece is found as prompt lookup
finds a draft: it stands around the place where the last tokens occurred before.

Positions count tokens of the text, from its first one on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Span(NamedTuple):
    """The tokens of a text from `start` up to, not including, `end`."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, position: object) -> bool:
        return isinstance(position, int) and self.start <= position < self.end

    def overlaps(self, other: "Span") -> bool:
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class ContextSizes:
    """The policy's parameters, in tokens. The defaults are measured: see docs/performance.md."""

    sink: int = 64
    window: int = 512  # after a text's begin, and after the window has been shortened: it grows with the text
    most_window: int = 768  # from which it is shortened
    before: int = 64  # of a piece, before the place where the text goes on
    after: int = 192  # of a piece, from that place on
    pieces: int = 3  # at a time
    match: int = 4  # tokens that have to occur at the place
    sure: int = 2  # matches in sequence that replace a piece by one that does not overlap it
    chunk: int = 64  # of a piece, that are read at a time between draft steps
    late: int = 16  # by which the text grows until draft steps read a piece for which there was no time between them

    @property
    def piece(self) -> int:
        """The longest piece."""
        return self.before + self.after

    @property
    def most(self) -> int:
        """The longest context."""
        return self.sink + self.pieces * self.piece + self.most_window

    @property
    def engine_context(self) -> int:
        """The context that an engine must have, with room for drafts."""
        return self.most + self.piece


SIZES = ContextSizes()


class ContextRead(NamedTuple):
    """How many tokens of a text of `of` tokens a draft model has in its context."""

    sink: int
    pieces: int
    window: int
    of: int

    @property
    def read(self) -> int:
        return self.sink + self.pieces + self.window


class ComposedContext:
    """The parts of one text that a draft model has, and the policy that chooses them. It reads nothing itself.

    Their order is: sink, pieces as they came, window.
    """

    def __init__(
        self,
        answer: int,
        sizes: ContextSizes = SIZES,
        text: Sequence[int] = (),
        pieces: Sequence[Span] = (),
        window: int | None = None,
    ) -> None:
        """`answer`: where the answer begins, the length of the prompt.
        `text`, `pieces`, `window`: what the model has, of the text as far as it goes; None: nothing.
        """
        self.sizes, self.pieces, self.window = sizes, list(pieces), window or 0  # where the window begins
        self._answer, self._begun = answer, window is not None
        self._ids, self._length = np.zeros(0, dtype=np.int32), 0
        self._used = dict.fromkeys(pieces, 0)  # the length of the text when a match last pointed into a piece
        self._misses = 0  # matches in sequence that pointed outside
        self._take(text)

    @property
    def head(self) -> list[Span]:
        """The parts before the window."""
        return [Span(0, min(self.sizes.sink, self.window)), *self.pieces]

    def follow(self, text: Sequence[int]) -> None:
        """Take in the grown text, and choose the context anew.

        At most one piece is new, however much the text has grown: the latest.
        """
        old, known = list(self.pieces), self._length
        self._take(text)
        if not self._begun or self._length - self.window > self.sizes.most_window:
            self.window, self._begun = max(0, self._length - self.sizes.window), True
            if self.window <= self.sizes.sink:
                self.window = 0
        first = max(known, self._answer + self.sizes.match - 1, self._length - self.sizes.window)
        for length in range(first + 1, self._length + 1):
            self._look_up(length)
        for piece in [piece for piece in self.pieces if piece not in old][:-1]:
            self._drop(piece)

    def first_pieces(self) -> Iterator[None]:
        """Choose pieces before the answer begins, where there are none: the one that the prompt's end names, if one
        stands out, and the one right before the window. Each is in `pieces` when the next one is asked for."""
        if self.pieces or self.window <= self.sizes.sink:
            return
        named = named_piece(self._ids[: self._length], self.sizes, self.window)
        if named is not None:
            self._add(named, _NEVER)
            yield
        longer = Span(max(self.sizes.sink, self.window - self.sizes.piece), self.window)
        if named is None or not longer.overlaps(named):
            self._add(longer, _NEVER)
            yield

    def refuse(self, piece: Span) -> None:
        """Do without a piece, which could not be read."""
        self._drop(piece)

    def _take(self, text: Sequence[int]) -> None:
        if len(text) > len(self._ids):  # room for as much again: the text grows token by token
            self._ids = np.concatenate([self._ids[: self._length], np.zeros(len(text), dtype=np.int32)])
        if len(text) > self._length:
            self._ids[self._length : len(text)] = text[self._length :]
            self._length = len(text)

    def _look_up(self, length: int) -> None:
        """Follow the text up to its token number `length`: choose a piece where its last tokens stood before."""
        places = _continuations(self._ids[:length], self.sizes.match)
        pointed = [piece for piece in self.pieces if any(place in piece for place in places)]
        for piece in pointed:
            self._used[piece] = length
        inside = any(place < self.sizes.sink or place >= self.window for place in places)
        if not places or pointed or inside:
            self._misses = 0
            return
        self._misses += 1
        new = self._around(places[-1])
        # What overlaps is used up. The new piece keeps the overlap: what is copied goes on from there.
        lost = [piece for piece in self.pieces if piece.overlaps(new)]
        if len(self.pieces) - len(lost) >= self.sizes.pieces:
            oldest = min((each for each in self.pieces if each not in lost), key=lambda each: self._used[each])
            if self._misses < self.sizes.sure and self._used[oldest] != _NEVER:
                return
            lost.append(oldest)
        for piece in lost:
            self._drop(piece)
        self._add(new, length)

    def _around(self, place: int) -> Span:
        return Span(max(self.sizes.sink, place - self.sizes.before), min(self.window, place + self.sizes.after))

    def _add(self, piece: Span, length: int) -> None:
        self.pieces.append(piece)
        self._used[piece], self._misses = length, 0

    def _drop(self, piece: Span) -> None:
        self.pieces.remove(piece)
        del self._used[piece]


_NEVER = -1  # in place of the length of the text when a match pointed into a piece
_LONGEST = 64  # tokens of a match that are compared
_REQUEST = 128  # last tokens of a prompt in which names are looked for
_BLOCK = 32  # tokens: places are counted by blocks of so many
_RARE = 1.5  # weight from which a pair of tokens counts as a name: it stands in less than a quarter of the blocks
_NAMES = 2.0  # names of the rarest kind that a piece must have


def _continuations(ids: NDArray[np.int32], match: int) -> list[int]:
    """Where the text went on behind earlier places of its last tokens: the places, in order, of the longest match.

    None if the longest match is shorter than `match`.
    """
    last = ids[-match:]
    count = len(ids) - match  # a match must end before the text does
    if count <= 0:
        return []
    same = ids[:count] == last[0]
    for offset in range(1, match):
        same &= ids[offset : count + offset] == last[offset]
    places, length = np.flatnonzero(same) + match, match
    while len(places) > 1 and length < _LONGEST:  # those whose match is longer stay
        longer = places[places > length]
        longer = longer[ids[longer - length - 1] == ids[-length - 1]]
        if not len(longer):
            break
        places, length = longer, length + 1
    return [int(place) for place in places]


def named_piece(prompt: Sequence[int] | NDArray[np.int32], sizes: ContextSizes, window: int) -> Span | None:
    """The piece of a prompt before its window that has most of what the request names; None: none stands out.

    `window`: where the window begins. The request is the prompt's end. A name is a pair of tokens that is rare in the
    prompt: rare ones weigh more.
    """
    ids = np.array(prompt, dtype=np.int64)
    begin, end = sizes.sink, window
    if end - begin < sizes.piece:
        return None
    pairs = ids[:-1] << 32 | ids[1:]
    middle, asked = pairs[begin:end], np.unique(pairs[max(window, len(pairs) - _REQUEST) :])
    places = np.flatnonzero(np.isin(middle, asked))
    if not len(places):
        return None
    blocks = -(-len(middle) // _BLOCK)
    there = np.zeros((blocks, len(asked)), dtype=bool)
    there[places // _BLOCK, np.searchsorted(asked, middle[places])] = True
    counts = there.sum(axis=0)
    weights = np.log(blocks / np.maximum(counts, 1)) * (counts > 0)
    weights[weights < _RARE] = 0.0
    width = min(blocks, max(1, sizes.piece // _BLOCK))
    sums = np.vstack([np.zeros((1, len(asked)), dtype=np.int64), there.cumsum(axis=0)])
    scores = (sums[width:] > sums[:-width]) @ weights
    best = int(scores.argmax())
    if scores[best] < _NAMES * np.log(blocks):
        return None
    start = begin + best * _BLOCK
    return Span(start, min(end, start + sizes.piece))
