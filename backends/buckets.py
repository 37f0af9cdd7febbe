"""Which shapes a compiler gets to see: few, each of them compiled once, whatever the batches hold.

A batch of any rows and widths becomes launches. Entries of few tokens share one, padded to the widest of them; an entry
of many tokens has one of its own. Where shapes are free (nothing is compiled) a launch is as wide as its entries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from backends.base import Entry

NARROW = 32  # tokens up to which an entry shares a launch, and logits that a launch of one entry gives at most
_WIDE = 64  # the smallest bucket beyond


class Launch(NamedTuple):
    """One run of the model: `shape` is (rows, tokens a row), its padding included.

    `pieces[i]` is a part of the entry `owners[i]` of the batch, in the same order as the rows of the launch.
    """

    shape: tuple[int, int]
    pieces: list[Entry]
    owners: list[int]

    def places(self, piece: Entry) -> slice:
        """Which of the tokens whose logits the launch keeps are those that `piece` wants."""
        first = 0 if self.shape[1] > NARROW else piece.logits_from
        return slice(first, first + len(piece.tokens) - piece.logits_from)


@dataclass(frozen=True, slots=True)
class Buckets:
    """Shapes for an engine of so many rows, with so many tokens in a batch. `compiled`: only few shapes are used."""

    rows: int
    batch_tokens: int
    compiled: bool

    @property
    def row_counts(self) -> list[int]:
        """Rows of a launch: powers of four, and all of them."""
        return sorted({*(4**n for n in range(self.rows.bit_length()) if 4**n < self.rows), self.rows})

    @property
    def widths(self) -> list[int]:
        """Tokens a row where rows share a launch: powers of two."""
        return [2**n for n in range(NARROW.bit_length())]

    @property
    def wide_widths(self) -> list[int]:
        """Tokens where an entry has a launch of its own: powers of two, up to a whole batch."""
        most = max(self.batch_tokens, _WIDE)
        return [2**n for n in range(_WIDE.bit_length() - 1, (most - 1).bit_length() + 1)]

    @property
    def padding(self) -> int:
        """Tokens by which padding may reach beyond the context."""
        return max(self.wide_widths) if self.compiled else NARROW

    def shapes(self) -> list[tuple[int, int]]:
        """All that a compiler will see, the widest last."""
        shared = [(rows, width) for rows in self.row_counts for width in self.widths]
        return [*shared, *((1, width) for width in self.wide_widths)]

    def launches(self, batch: Sequence[Entry]) -> list[Launch]:
        """`batch` as launches that feed every token once, in order for each row."""
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
            shape = self._fit(len(shared), self.row_counts), self._fit(width, self.widths)
            launches.insert(0, Launch(shape, [entry for _, entry in shared], [owner for owner, _ in shared]))
        return launches

    def _fit(self, count: int, sizes: list[int]) -> int:
        return next(size for size in sizes if size >= count) if self.compiled else count


def _pieces(entry: Entry) -> list[Entry]:
    """An entry cut so that a piece of many tokens gives few logits: nearly always it is one piece."""
    row, start, tokens, logits_from = entry
    if len(tokens) <= NARROW:
        return [entry]
    cut = min(len(tokens), logits_from + NARROW)
    pieces = [Entry(row, start, tokens[:cut], min(logits_from, cut))]
    for at in range(cut, len(tokens), NARROW):
        pieces.append(Entry(row, start + at, tokens[at : at + NARROW], 0))
    return pieces
