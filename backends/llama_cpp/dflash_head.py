"""DFlash: a head that drafts a block of tokens in one pass (2602.06036).

It computes keys and values of a token from the inputs of layers of its target, at the token's position. A block is the
last known token with masks behind it, and the logits at a mask are those of the token there. They depend on the known
token only, so that a longer tail needs no pass.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from backends.llama_cpp.batch import PassBatch
from backends.llama_cpp.head_slots import HeadContext, Hidden, LlamaHead
from backends.llama_cpp.layer_inputs import LayerInputs
from backends.llama_cpp.library import floats, lib
from specpair.engines.backend import Entry, HeadEntry, Logits


class DflashHead(LlamaHead):
    """A DFlash head."""

    name = "DFlash head"

    def __init__(
        self, model: Any, target: Any, params: Any, slots: int, layers: Sequence[int], block: int, *, causal: bool
    ) -> None:
        """As `LlamaHead`. `params`: of the target's context. They are changed.

        `layers`: of the target, which the file names.
        `block`: tokens of a pass that drafts, with the one that is known.
        `causal`: whether a token of the block attends to those before it only.
        """
        self.depth, self._block = block - 1, block
        self._inputs = LayerInputs(target, layers)
        params.n_seq_max, params.n_ctx = slots, params.n_ctx + slots * block
        # llama.cpp takes a pass that is not causal as a whole.
        self._room = max(block, int(params.n_ubatch))
        params.n_batch = params.n_ubatch = self._room
        params.kv_unified, params.n_rs_seq, params.ctx_other = True, 0, target
        super().__init__(model, target, params, slots)
        lib.llama_set_causal_attn(self._contexts[0].context, causal)
        self._mask = int(lib.llama_vocab_mask(lib.llama_model_get_vocab(model)))
        self._features = PassBatch(self._room, 1, self._inputs.width, ids=False)
        self._batch = PassBatch(self._room, 1)

    def _rows(self, count: int) -> Hidden:
        return self._inputs.read(count)

    def extend(self, batch: Sequence[HeadEntry]) -> Logits:
        asked = list[HeadEntry]()
        for entry in batch:
            slot, start, tail = entry
            if self._followed[slot].held != start:
                self.cut(slot, start)
            # A draft begins with a tail of one token, for which the pass is run anew: only so is it timed as a whole.
            if len(tail) == 1 or self._followed[slot].chain != [tail[0]]:
                asked.append(entry)
        together = self._room // self._block
        for at in range(0, len(asked), together):
            self._draft(asked[at : at + together])
        return np.stack([self._followed[slot].own[len(tail) - 1] for slot, _, tail in batch])

    def _draft(self, asked: Sequence[HeadEntry]) -> None:
        """Run the pass of a block for each entry, and keep its rows of logits."""
        context = self._contexts[0]
        for slot, _, _ in asked:
            self._read(context, slot)
        self._batch.tokens = 0
        for slot, start, tail in asked:
            self._batch.add(Entry(slot, start, [tail[0]] + [self._mask] * self.depth, 0))
            context.chain[slot] = [tail[0]] * self._block  # in the cache, until the slot is cut
        self._decode(context, self._batch)
        rows = floats(lib.llama_get_logits(context.context), len(asked) * self._block, self._vocabulary)
        for at, (slot, start, tail) in enumerate(asked):
            followed = self._followed[slot]
            followed.chain, followed.own = [tail[0]], [*rows[at * self._block + 1 : (at + 1) * self._block].copy()]
            context.cut(slot, start)

    def _read(self, context: HeadContext, slot: int) -> None:
        followed = self._followed[slot]
        while (start := context.read[slot]) < followed.held:
            rows = followed.hidden[start - followed.first :][: self._room]
            self._features.tokens = 0
            self._features.add_inputs(slot, start, rows)
            self._features.wanted[: len(rows)] = 0
            self._decode(context, self._features)
            context.read[slot] = start + len(rows)
