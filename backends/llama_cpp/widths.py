"""Finds the widths of passes on CPUs between which not a bit of the results changes."""

from collections.abc import Callable

import numpy as np

from specpair.engines.backend import Logits

ONE_PATH = 63  # tokens; wider passes have another kernel for attention
_TRIED = (4, 8, 16, 32, ONE_PATH)  # widths of passes
_COMPARED = 8  # tokens; a few are not enough: often a last bit is lost where the inputs of a product are rounded


def equal_up_to(run: Callable[[int, int], Logits], widest: int) -> int:
    """The widest pass, in tokens, whose results have the same bits as passes of 2; ONE_PATH if no trial differs.

    On CPUs llama.cpp has several kernels for the product of weights and tokens, and chooses by type of weights and
    width of the pass. They add up in different orders. Seen with AVX2: weights in bfloat16 take another kernel from 2
    tokens on, K-quants that were repacked from 4 on, the same as they are in the file from 8 on (unless
    GGML_CPU_TILED_MM is 0), Q8_0 and Q4_0 have one for all.

    `run(start, end)`: runs one pass over the tokens `start` to `end` of a text, on top of those before them, and
        returns a copy of their logits.
    `widest`: most tokens of a trial, 2 or more.
    """
    compared = min(_COMPARED, widest) // 2 * 2
    narrow = np.concatenate([run(at, at + 2) for at in range(0, compared, 2)])
    for width in _TRIED:
        if width <= widest:
            rows = run(0, width)[:compared]
            if not np.array_equal(rows, narrow[: len(rows)]):
                return width - 1
    return ONE_PATH
