"""The widths that transformers-neuronx is compiled for, and how tokens of any number are cut and padded to them."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

# Widths of the speculative passes, each a program of its own. The library finds the one for a call by bisecting
# `list(set(widths))`, so a width is found for sure only if Python happens to keep their set in ascending order: it does
# these, it does not 4, 8, 16, 32, 64. None is 1: a single token is another kind of pass (`backends.neuron.backend`).
# All are below the least cache, for a pass as wide as the cache is taken for a prompt.
LENGTHS: Final = (4, 8, 16, 30, 63)

_GRAIN: Final = 128  # of cache and buckets: what the chip's matrix unit is wide


class Piece(NamedTuple):
    """One speculative pass: `size` tokens from `first` on, padded to the compiled `length`."""

    first: int
    size: int
    length: int


def pieces(count: int) -> list[Piece]:
    """Cut `count` tokens into passes: full ones of the widest, then one of the narrowest that holds the rest."""
    widest = LENGTHS[-1]
    full, rest = divmod(count, widest)
    cut = [Piece(number * widest, widest, widest) for number in range(full)]
    if rest:
        cut.append(Piece(full * widest, rest, next(length for length in LENGTHS if length >= rest)))
    return cut


def places(start: int, length: int, slots: int) -> list[int]:
    """Slots of a pass of `length` from `start` on: one behind the other, at the end of the row all in its last slot.

    Pads may take these. What they overwrite counts for nothing: slots behind the last real token are written again
    before they are seen, and the last slot is kept free of tokens. They may not stand before `start`: a pass sees of
    the cache what lies below the least of its slots.
    """
    return [min(start + offset, slots - 1) for offset in range(length)]


def slots_for(context_length: int) -> int:
    """Slots of a row that holds `context_length` tokens: one more at least, for pads."""
    return _round_up(context_length + 1)


def prompt_buckets(batch_tokens: int, slots: int) -> list[int]:
    """Widths of the prompt passes: a short one, one for a whole batch, and one as wide as the cache.

    The last is there for its width alone: the library's own pads go to the last slot of the widest bucket, which would
    otherwise be a slot in the middle of a text.
    """
    return sorted({_GRAIN, min(_round_up(batch_tokens), slots), slots})


def kv_heads_held(heads: int, kv_heads: int, cores: int) -> int:
    """Key-value heads in the caches of all cores: at least one a core, so that some may be there more than once."""
    if kv_heads % cores and kv_heads != heads:
        kv_heads = cores if cores % kv_heads == 0 else heads
    return math.ceil(kv_heads / cores) * cores


def padded(tokens: Sequence[int], length: int) -> list[int]:
    """The tokens and as many zeros behind them as make `length`."""
    return [*tokens, *[0] * (length - len(tokens))]


def _round_up(count: int) -> int:
    return math.ceil(count / _GRAIN) * _GRAIN
