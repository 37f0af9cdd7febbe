"""The widths that transformers-neuronx is compiled for, and the cutting and padding of tokens to these widths."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

# Widths of the speculative passes in tokens, each with a compiled program of its own. The library selects a program by
# bisecting `list(set(widths))`, which works only if Python's set of the widths iterates in ascending order. It does for
# these widths, but not for 4, 8, 16, 32, 64. No width is 1, since a single token is another kind of pass
# (`backends.neuron.backend`). All are below the smallest cache, since the library takes a pass as wide as the cache for
# a prompt.
LENGTHS: Final = (4, 8, 16, 30, 63)

_GRAIN: Final = 128  # cache and buckets are multiples of it: the width of the chip's matrix unit


class Piece(NamedTuple):
    """The tokens of one speculative pass: `size` of them, from index `first` on, padded to the compiled `length`."""

    first: int
    size: int
    length: int


def pieces(count: int) -> list[Piece]:
    """Cut `count` tokens into passes of the greatest width, and one of the smallest width that the rest fits."""
    widest = LENGTHS[-1]
    full, rest = divmod(count, widest)
    cut = [Piece(number * widest, widest, widest) for number in range(full)]
    if rest:
        cut.append(Piece(full * widest, rest, next(length for length in LENGTHS if length >= rest)))
    return cut


def cells_of(start: int, length: int, cells: int) -> list[int]:
    """The cells of a pass of `length` tokens from the cell `start` on, in a slot of `cells` cells.

    They are consecutive, but the slot's last cell takes all that would lie beyond it.

    Padding may overwrite cells behind the last real token, since they are written again before they are read, and the
    last cell, which holds no token. Padding may not go below `start`: a pass attends to the cells below the smallest of
    its own.
    """
    return [min(start + offset, cells - 1) for offset in range(length)]


def cells_for(context_length: int) -> int:
    """The number of cells in a slot that holds `context_length` tokens: at least one more, for padding."""
    return _round_up(context_length + 1)


def prompt_buckets(batch_tokens: int, cells: int) -> list[int]:
    """The widths of the prompt passes in tokens: a short one, one for a whole batch, and one as wide as the cache.

    The last one is needed for its width alone: the library writes its own padding to the last cell of the widest
    bucket, which would otherwise be a cell in the middle of a text.
    """
    return sorted({_GRAIN, min(_round_up(batch_tokens), cells), cells})


def kv_heads_held(heads: int, kv_heads: int, cores: int) -> int:
    """The number of key-value heads in the caches of all cores, copies and padding included.

    Every core holds equally many, at least one. Where the heads cannot be dealt out, the library copies each: as often
    as suffices for one a core if the query heads can be dealt out to match, else once for each query head (library:
    utils.get_qkv_padding).
    """
    held = math.ceil(kv_heads / cores) * cores
    if kv_heads in (heads, held):
        return held
    query_heads = math.ceil(heads / cores) * cores  # with those added as padding
    if cores % kv_heads == 0 and (query_heads - heads) % kv_heads == 0:
        return cores
    if query_heads * kv_heads == heads * cores:  # a core's query heads are those of one key-value head
        return held
    return query_heads


def padded(tokens: Sequence[int], length: int) -> list[int]:
    """`tokens`, padded with zeros to `length`."""
    return [*tokens, *[0] * (length - len(tokens))]


def _round_up(count: int) -> int:
    return math.ceil(count / _GRAIN) * _GRAIN
