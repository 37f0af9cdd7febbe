"""Cuts the batch of a forward pass into launches of few shapes, so that a compiler compiles each shape once.

A launch is one run of the model. Entries of few tokens share a launch, padded to the widest of them. An entry of many
tokens has a launch of its own. Where nothing is compiled, a launch is exactly as wide as its widest entry.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specpair.engines.backend import Entry
from specpair.speculation.draft import paths

NARROW = 32  # tokens: an entry of more never shares a launch; a wider launch gives logits of at most 32 tokens
WIDTHS = (1, 2, 4, 8, 16, NARROW)  # tokens per slot in a launch that slots share
_WIDE = 64  # the smallest bucket above NARROW


class Launch(NamedTuple):
    """One run of the model: `shape` is (slots, tokens per slot), padding included.

    `pieces[i]` is a part, usually all, of the entry at index `owners[i]` of the batch.
    """

    shape: tuple[int, int]
    pieces: list[Entry]
    owners: list[int]

    def returned(self, piece: Entry) -> slice:
        """The slice of the launch's logits for its slot that belongs to `piece`."""
        first = 0 if self.shape[1] > NARROW else piece.logits_from
        return slice(first, first + len(piece.tokens) - piece.logits_from)

    def seen(self, lines: Sequence[Entry | None]) -> NDArray[np.bool_] | None:
        """The tokens of its line that each token attends to, itself included: (lines, tokens, tokens). Their count sets
        its position. None: only chains, where each token attends to all before it.

        `lines`: the piece of each line; None: padding.
        """
        if not any(piece is not None and piece.parents for piece in lines):
            return None
        found = np.tile(np.tri(self.shape[1], dtype=np.bool_), (len(lines), 1, 1))
        for line, piece in zip(found, lines, strict=True):
            if piece is not None and piece.parents:
                nodes = slice(piece.trunk, len(piece.tokens))
                line[nodes, nodes] = paths(piece.parents)
        return found

    def slots(self, lengths: Sequence[int]) -> list[int]:
        """The slots of the launch: those of its pieces, then others up to its shape.

        `lengths`: tokens in each slot of the engine.
        """
        if self.shape[0] == len(lengths):
            return list(range(len(lengths)))
        taken = [piece.slot for piece in self.pieces]
        others = sorted(set(range(len(lengths))) - set(taken), key=lengths.__getitem__)  # the shortest: small spans
        return [*taken, *others[: self.shape[0] - len(taken)]]


@dataclass(frozen=True, slots=True)
class Buckets:
    """The launch shapes of an engine with `slots` slots and batches of at most `batch_tokens` tokens.

    `compiled`: launches are padded to one of `shapes`; else any shape is used.
    `widths`: tokens per slot in a launch that slots share, ascending, at most NARROW. A wider entry has its own launch.
    `wide`: tokens in a launch of one wide entry, ascending, above NARROW, the last at least `batch_tokens`; may be
        empty where no batch exceeds the last of `widths`; None: powers of two, up to a whole batch.
    `even`: entries share a launch with those of as many tokens only; for models whose states would read padding. Only
        where nothing is compiled.
    """

    slots: int
    batch_tokens: int
    compiled: bool
    widths: Sequence[int] = WIDTHS
    wide: Sequence[int] | None = None
    even: bool = False

    @property
    def slot_counts(self) -> list[int]:
        """The numbers of slots that a launch can have: powers of four, and all slots."""
        return sorted({*(4**n for n in range(self.slots.bit_length()) if 4**n < self.slots), self.slots})

    @property
    def wide_widths(self) -> Sequence[int]:
        """The numbers of tokens in a launch of one wide entry."""
        if self.wide is not None:
            return self.wide
        most = max(self.batch_tokens, _WIDE)
        return [2**n for n in range(_WIDE.bit_length() - 1, (most - 1).bit_length() + 1)]

    @property
    def padding(self) -> int:
        """How many positions beyond the context length a slot's cache needs for padding."""
        return max(*self.widths, *self.wide_widths, 1) if self.compiled else NARROW

    @property
    def most_nodes(self) -> int:
        """Most nodes of a tree: it and the token before it are in one launch."""
        return self.widths[-1] - 1

    def shapes(self) -> list[tuple[int, int]]:
        """All shapes (slots, tokens per slot) that a compiler will see, the widest last."""
        shared = [(slots, width) for slots in self.slot_counts for width in self.widths]
        return [*shared, *((1, width) for width in self.wide_widths)]

    def launches(self, batch: Sequence[Entry]) -> list[Launch]:
        """Cut `batch` into launches that feed every token once, in order for each slot."""
        shared: list[tuple[int, Entry]] = []
        launches: list[Launch] = []
        for owner, entry in enumerate(batch):
            first, *others = _pieces(entry, self.widths[-1])
            if len(first.tokens) <= self.widths[-1]:
                shared.append((owner, first))
            else:
                launches.append(Launch((1, self._fit(len(first.tokens), self.wide_widths)), [first], [owner]))
            launches += [Launch((1, self._fit(len(each.tokens), self.widths)), [each], [owner]) for each in others]
        widest = max((len(entry.tokens) for _, entry in shared), default=0)
        by_width: dict[int, list[tuple[int, Entry]]] = {}
        for each in shared:
            by_width.setdefault(len(each[1].tokens) if self.even else widest, []).append(each)
        for width, those in by_width.items():
            shape = self._fit(len(those), self.slot_counts), self._fit(width, self.widths)
            launches.insert(0, Launch(shape, [entry for _, entry in those], [owner for owner, _ in those]))
        return launches

    def _fit(self, count: int, sizes: Sequence[int]) -> int:
        """The smallest of `sizes` that holds `count`; where nothing is compiled, `count` itself."""
        return next(size for size in sizes if size >= count) if self.compiled else count


def _pieces(entry: Entry, narrow: int) -> list[Entry]:
    """Cut an entry into pieces, usually one. Only the first may have more than `narrow` tokens; it returns logits of at
    most NARROW. A tree stays whole, with the token before it."""
    slot, start, tokens, logits_from, parents = entry
    if len(tokens) <= narrow:
        return [entry]
    if parents:
        cut = entry.trunk - 1
        chain = Entry(slot, start, tokens[:cut], min(logits_from, cut))
        return [*_pieces(chain, narrow), Entry(slot, start + cut, tokens[cut:], max(0, logits_from - cut), parents)]
    cut = min(len(tokens), logits_from + NARROW)
    pieces = [Entry(slot, start, tokens[:cut], min(logits_from, cut))]
    for at in range(cut, len(tokens), narrow):
        pieces.append(Entry(slot, start + at, tokens[at : at + narrow], 0))
    return pieces
