"""The programs that transformers-neuronx compiles for a model, and the cutting of tokens into passes of these programs.

There are three kinds of passes:

* a prompt pass, from cell 0 on, which returns the logits of its last token;
* a continuation, from a cell above 0 on, which returns the logits of its last token, too: for long prompts;
* a verify pass, from a cell above 0 on, which returns the logits of each of its tokens.

The library's fourth kind, a pass over a single token, is never used: it writes into cell 0 of every other slot.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions

GRAIN: Final = 128  # caches and prompt widths are multiples of it: the width of the chip's matrix unit
# Tokens of verify passes: with the pending one, drafts of 3, 12 and 29. Few, as each takes minutes to compile, and a
# pass over 4 slots of up to 30 tokens is one tile of the matrix unit anyway. No rounder numbers: see `programs_for`.
_VERIFY_WIDTHS: Final = (4, 13, 30)
# Tokens of a prompt pass: from 4,096 on, the library takes a kernel for attention that `make test-tnx` cannot run.
_PROMPT_AT_MOST: Final = 2048


class Piece(NamedTuple):
    """The tokens of one pass: `size` of them, from index `first` on, padded to the compiled `width`."""

    first: int
    size: int
    width: int
    last_only: bool  # a continuation, which returns the logits of its last token only; else a verify pass


@dataclass(frozen=True, slots=True)
class Programs:
    """The widths, in tokens, and the spans, in cells, that programs are compiled for. All are in ascending order.

    `slots`: of the cache.
    `spans`: how many cells of each slot a program attends to; the last one is all cells.
    """

    slots: int
    spans: tuple[int, ...]
    prompts: tuple[int, ...]
    continuations: tuple[int, ...]
    verify: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Cells in each slot, one per position."""
        return self.spans[-1]

    @property
    def batches(self) -> list[int]:
        """The numbers of slots that a verify pass can have: one, and all."""
        return sorted({1, self.slots})

    @property
    def count(self) -> int:
        """How many programs are compiled."""
        a_span = len(self.continuations) + len(self.verify) * len(self.batches)
        return len(self.prompts) + len(self.spans) * a_span

    def verify_width(self, count: int) -> int:
        """The width of a verify pass for up to `count` tokens of a slot, of which there is one at least as wide."""
        return next(width for width in self.verify if width >= count)

    def pieces(self, count: int, logits_from: int) -> list[Piece]:
        """Cut `count` tokens behind others into passes, with logits from the token at index `logits_from` on.

        Tokens whose logits nobody wants go through continuations, as far as these are wider than verify passes.
        """
        widest = self.verify[-1]
        unread = min(logits_from + 1, count)  # the last of a continuation may be the first token with wanted logits
        if unread <= widest or not self.continuations:
            return _cut(0, count, self.verify, last_only=False)
        return [
            *_cut(0, unread, self.continuations, last_only=True),
            *_cut(unread, count, self.verify, last_only=False),
        ]


def programs_for(options: LoadOptions, slots: int, context_length: int, batch_tokens: int) -> Programs:
    """The programs for slots that hold `context_length` tokens, and passes of up to `batch_tokens` tokens.

    Raises ModelLoadError for widths and spans in `options` that the library cannot use.
    """
    cells = cells_for(context_length)
    spans = tuple(sorted({_round_up(span) for span in options.compile_spans or () if span < cells} | {cells}))
    prompts = tuple(sorted({GRAIN, min(_round_up(batch_tokens), cells, _PROMPT_AT_MOST)}))
    verify = options.compile_widths or _VERIFY_WIDTHS
    # The library takes a pass as wide as its span for a prompt.
    if not 1 < verify[0] <= verify[-1] < GRAIN:
        raise ModelLoadError(
            f"compile_widths {_shown(verify)}: neuron_legacy verifies 2 to {GRAIN - 1} tokens in a pass",
            "compile_widths",
        )
    if list(set(verify)) != list(verify):
        raise ModelLoadError(
            f"compile_widths {_shown(verify)}: transformers-neuronx bisects a set of the widths, and Python's order of "
            f"this set is not ascending. {_shown(_VERIFY_WIDTHS)} and 4,8,16,30,63 work",
            "compile_widths",
        )
    return Programs(slots, spans, prompts, tuple(width for width in prompts if width < spans[0]), verify)


def cells_of(start: int, width: int, cells: int) -> list[int]:
    """The cells of a pass of `width` tokens from the cell `start` on, in a slot of `cells` cells.

    They are consecutive, but the slot's last cell takes all that would lie beyond it.

    Padding may overwrite cells behind the last real token, since they are written again before they are read, and the
    last cell, which holds no token. Padding may not go below `start`: a pass attends to the cells below the smallest of
    its own.
    """
    return [min(start + offset, cells - 1) for offset in range(width)]


def parked(held: int, width: int, cells: int) -> list[int]:
    """The cells of a slot that holds `held` tokens and takes no part in a pass over all slots.

    Not from cell 0 on: a pass whose first cell is 0 is a prompt pass to the library.
    """
    return cells_of(max(1, held), width, cells)


def cells_for(context_length: int) -> int:
    """The number of cells in a slot that holds `context_length` tokens: at least one more, for padding."""
    return _round_up(context_length + 1)


def padded(tokens: Sequence[int], width: int) -> list[int]:
    """`tokens`, padded with zeros to `width`."""
    return [*tokens, *[0] * (width - len(tokens))]


def _cut(first: int, end: int, widths: Sequence[int], *, last_only: bool) -> list[Piece]:
    """Cut the tokens from `first` to `end` into the fewest passes: all but the last one as wide as possible."""
    cut = []
    for at in range(first, end, widths[-1]):
        size = min(widths[-1], end - at)
        cut.append(Piece(at, size, next(width for width in widths if width >= size), last_only))
    return cut


def _round_up(count: int) -> int:
    return math.ceil(count / GRAIN) * GRAIN


def _shown(widths: Sequence[int]) -> str:
    return ",".join(map(str, widths))
