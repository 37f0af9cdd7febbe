"""Cuts batches into launches of few shapes, so that a compiler compiles each shape once.

A batch of any slots and widths becomes launches. Entries of few tokens share a launch, padded to the widest of them. An
entry of many tokens has a launch of its own. Where nothing is compiled, a launch is exactly as wide as its entries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from backends.base import Entry

NARROW = 32  # an entry of up to so many tokens shares a launch; a launch of one entry gives logits of at most so many
_WIDE = 64  # the smallest bucket above NARROW


class Launch(NamedTuple):
    """One run of the model: `shape` is (slots, tokens per slot), padding included.

    `pieces[i]` is a part of the entry `owners[i]` of the batch, in the order of the launch's slots.
    """

    shape: tuple[int, int]
    pieces: list[Entry]
    owners: list[int]

    def places(self, piece: Entry) -> slice:
        """The tokens that `piece` wants logits of, among the tokens whose logits the launch keeps."""
        first = 0 if self.shape[1] > NARROW else piece.logits_from
        return slice(first, first + len(piece.tokens) - piece.logits_from)


@dataclass(frozen=True, slots=True)
class Buckets:
    """The launch shapes of an engine. `compiled`: launches are padded to one of `shapes`; else any shape is used.

    `slots`: of the engine. `batch_tokens`: tokens in one batch.
    """

    slots: int
    batch_tokens: int
    compiled: bool

    @property
    def slot_counts(self) -> list[int]:
        """Numbers of slots in a launch: powers of four, and all slots."""
        return sorted({*(4**n for n in range(self.slots.bit_length()) if 4**n < self.slots), self.slots})

    @property
    def widths(self) -> list[int]:
        """Tokens per slot where slots share a launch: powers of two."""
        return [2**n for n in range(NARROW.bit_length())]

    @property
    def wide_widths(self) -> list[int]:
        """Tokens of a launch of one entry: powers of two, up to a whole batch."""
        most = max(self.batch_tokens, _WIDE)
        return [2**n for n in range(_WIDE.bit_length() - 1, (most - 1).bit_length() + 1)]

    @property
    def padding(self) -> int:
        """How many tokens padding may reach beyond the context."""
        return max(self.wide_widths) if self.compiled else NARROW

    def shapes(self) -> list[tuple[int, int]]:
        """All shapes that a compiler will see, the widest last."""
        shared = [(slots, width) for slots in self.slot_counts for width in self.widths]
        return [*shared, *((1, width) for width in self.wide_widths)]

    def launches(self, batch: Sequence[Entry]) -> list[Launch]:
        """Cut `batch` into launches that feed every token once, in order for each slot."""
        shared: list[tuple[int, Entry]] = []
        launches: list[Launch] = []
        for owner, entry in enumerate(batch):
            first, *others = _pieces(entry)
            if len(first.tokens) <= NARROW:
                shared.append((owner, first))
            else:
                launches.append(Launch((1, self._fit(len(first.tokens), self.wide_widths)), [first], [owner]))
            launches += [Launch((1, self._fit(len(each.tokens), self.widths)), [each], [owner]) for each in others]
        if shared:
            width = max(len(entry.tokens) for _, entry in shared)
            shape = self._fit(len(shared), self.slot_counts), self._fit(width, self.widths)
            launches.insert(0, Launch(shape, [entry for _, entry in shared], [owner for owner, _ in shared]))
        return launches

    def _fit(self, count: int, sizes: list[int]) -> int:
        return next(size for size in sizes if size >= count) if self.compiled else count


def _pieces(entry: Entry) -> list[Entry]:
    """Cut an entry so that a piece of many tokens gives logits of at most NARROW: usually the result is one piece."""
    slot, start, tokens, logits_from = entry
    if len(tokens) <= NARROW:
        return [entry]
    cut = min(len(tokens), logits_from + NARROW)
    pieces = [Entry(slot, start, tokens[:cut], min(logits_from, cut))]
    for at in range(cut, len(tokens), NARROW):
        pieces.append(Entry(slot, start + at, tokens[at : at + NARROW], 0))
    return pieces
