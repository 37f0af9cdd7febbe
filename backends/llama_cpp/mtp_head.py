"""MTP heads: layers of a model's own file that draft its next tokens from its hidden states (DeepSeek-V3, 2412.19437).

A head reads pairs: a token, and the target's hidden state at the position before it. It keeps keys and values of its
own. Behind the last of the target's states it goes on with its own ones. With several heads, each drafts one token.
They have a context each, since a pass of one would take the cells of another.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from llama_cpp import llama_cpp_ext as extended

from backends.llama_cpp.batch import PassBatch
from backends.llama_cpp.head_slots import FollowedSlot, HeadContext, Hidden, LlamaHead
from backends.llama_cpp.library import floats, lib
from specpair.engines.backend import Entry, HeadEntry, Logits
from specpair.speculation.acceptance.strategies import common_prefix

MOST_DRAFTED = 8  # tokens by a single head, behind which it is rarely right


class PairHead(LlamaHead):
    """A head that reads pairs of tokens and hidden states, and drafts token by token."""

    _first_pair = 0  # the position of the first token that it reads: at 0 there is no state before it

    def __init__(self, model: Any, target: Any, params: Any, slots: int, heads: int, width: int) -> None:
        """As `LlamaHead`. `params`: of the target's context. They are changed.

        `heads`: how many there are.
        `width`: numbers in a hidden state.
        """
        self.depth = heads if heads > 1 else MOST_DRAFTED
        # Before what it drafts a head reads what waits, in the same pass. It has no trees.
        more = slots * (self.depth + 1)
        params.n_seq_max, params.n_ctx, params.n_batch = slots, params.n_ctx + more, params.n_batch + more
        params.kv_unified, params.n_rs_seq, params.ctx_other = True, 0, target
        self._room, self._width = int(params.n_batch), width
        super().__init__(model, target, params, slots, heads)
        for each in self._contexts:
            extended.llama_set_embeddings_nextn(each.context, True, True)
        self._batch = PassBatch(self._room, 1, width)

    def extend(self, batch: Sequence[HeadEntry]) -> Logits:
        for slot, start, tail in batch:
            if self._followed[slot].held != start:
                self.cut(slot, start)
            followed = self._followed[slot]
            same = common_prefix(followed.chain, tail[:-1])
            del followed.chain[same:], followed.own[same:]
        found: Logits = np.empty((len(batch), self._vocabulary), dtype=np.float32)
        left = [*enumerate(batch)]
        while left:
            by_head = dict[int, list[tuple[int, HeadEntry]]]()  # of several heads each depth has its own
            for at, entry in left:
                depth = len(self._followed[entry.slot].chain)
                by_head.setdefault(min(depth, len(self._contexts) - 1), []).append((at, entry))
            for head, asked in by_head.items():
                self._step(self._contexts[head], asked, found)
            left = [(at, each) for at, each in left if len(self._followed[each.slot].chain) < len(each.tail)]
        return found

    def _step(self, context: HeadContext, asked: Sequence[tuple[int, HeadEntry]], found: Logits) -> None:
        """Read one more token of each tail, and put the logits behind it into the rows of `found`."""
        unread = [self._followed[slot].held - context.read[slot] for _, (slot, _, _) in asked]
        if sum(unread) + len(asked) * (self.depth + 1) > self._room:
            for _, (slot, _, _) in asked:
                self._read(context, slot)
        self._batch.tokens, ends = 0, list[int]()
        for _, (slot, start, tail) in asked:
            followed = self._followed[slot]
            depth = len(followed.chain)
            # What several heads have read behind the target's states is no use to any of them but the one.
            whole = len(self._contexts) == 1 and context.read[slot] == start
            same = common_prefix(context.chain[slot], tail[:depth]) if whole else 0
            context.cut(slot, start, same)
            self._add_pairs(context, slot)
            first = self._batch.tokens
            self._batch.add(Entry(slot, start + same, tail[same : depth + 1], 0), None)
            states = [self._state(followed, start - 1), *followed.own]
            for row, state in enumerate(states[same : depth + 1], first):
                self._batch.inputs[row] = state
            context.chain[slot] = list(tail[: depth + 1])
            ends.append(self._batch.tokens - 1)
        # With logits of some tokens only, llama.cpp returns the hidden states of others.
        self._batch.wanted[: self._batch.tokens] = 1
        self._decode(context, self._batch)
        for (at, (slot, _, tail)), row in zip(asked, ends, strict=True):
            followed, handle = self._followed[slot], context.context
            found[at] = floats(lib.llama_get_logits_ith(handle, row), self._vocabulary)
            followed.own.append(floats(extended.llama_get_embeddings_nextn_ith(handle, row), self._width).copy())
            followed.chain.append(tail[len(followed.chain)])

    def _read(self, context: HeadContext, slot: int) -> None:
        while context.read[slot] < self._followed[slot].held:
            self._batch.tokens = 0
            context.cut(slot, context.read[slot])
            self._add_pairs(context, slot)
            if self._batch.tokens:
                self._batch.wanted[: self._batch.tokens] = 0
                self._decode(context, self._batch)

    def _add_pairs(self, context: HeadContext, slot: int) -> None:
        """Add the pairs of a slot that wait to the batch, as many as have room."""
        followed, first = self._followed[slot], self._batch.tokens
        start = min(followed.held, max(context.read[slot], self._first_pair))
        end = min(followed.held, start + self._room - first)
        context.read[slot] = end
        if start == end:
            return
        tokens = followed.tokens[start - followed.first : end - followed.first]
        self._batch.add(Entry(slot, start, tokens, 0), None)
        at = start - followed.first
        self._batch.inputs[first] = self._state(followed, start - 1)
        self._batch.inputs[first + 1 : self._batch.tokens] = followed.hidden[at : at + len(tokens) - 1]

    def _state(self, followed: FollowedSlot, position: int) -> Hidden | float:
        """The target's hidden state at a position; 0 for one that is not kept, behind which another text begins."""
        at = position - followed.first
        row: Hidden | float = followed.hidden[at] if at >= 0 else 0.0
        return row


class MtpHead(PairHead):
    """The MTP heads of a model's file or of their own. They read the states behind the target's last layer."""

    name = "MTP head"

    def __init__(self, model: Any, target: Any, params: Any, slots: int, heads: int) -> None:
        params.ctx_type = lib.LLAMA_CONTEXT_TYPE_MTP
        super().__init__(model, target, params, slots, heads, int(lib.llama_model_n_embd_out(model)))
        for layer, each in enumerate(self._contexts):
            if layer:
                extended.llama_set_nextn_layer_offset(each.context, layer)
        extended.llama_set_embeddings_nextn(target, True, False)

    def _rows(self, count: int) -> Hidden:
        return floats(extended.llama_get_embeddings_nextn(self._target), count, self._width)
