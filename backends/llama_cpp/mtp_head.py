"""MTP heads: layers of a model's own file that draft its next tokens from its hidden states (DeepSeek-V3, 2412.19437).

A head reads pairs: a token, and the target's hidden state at the position before it. It keeps keys and values of its
own. Behind the last of the target's states it goes on with its own ones. What it reads follows the target's slots:
`LlamaHead` is told of every pass, cut and copy, and reads the pairs when they are needed, many in one pass. With
several heads, each drafts one token. They have a context each, since a pass of one would take the cells of another.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import llama_cpp_ext as extended
from numpy.typing import NDArray

from backends.llama_cpp.batch import PassBatch
from backends.llama_cpp.library import floats, lib, take_warnings
from models.hub.gguf_check import read_parts
from models.hub.gguf_head import GgufHead
from models.hub.gguf_layers import draft_head, head_blocks
from specpair.command_line.start import interrupts_held
from specpair.engines.backend import Entry, HeadEntry, Logits
from specpair.engines.errors import EngineFailure, ModelLoadError, NoRoom
from specpair.engines.load_options import HEAD, NO_HEAD, LoadOptions
from specpair.speculation.acceptance.strategies import common_prefix

Hidden = NDArray[np.float32]  # shape (tokens, embedding length): hidden states

MOST_DRAFTED = 8  # tokens by a single head, behind which it is rarely right
_UNREAD = 64  # pairs of a slot that wait; with more the head reads them at once
_KEPT = 16  # pairs that were read and are kept, so that a slot can be cut there
# Architectures whose graph for heads llama.cpp has, and whether it takes several. It ends the process over others, and
# where `nextn.eh_proj` is missing. That of gemma4 shares the target's cache, which is another contract.
_SINGLE = ("bailingmoe3", "cohere2moe", "deepseek2", "glm4moe", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next")
_SEVERAL = ("deepseek32", "glm-dsa", "hy-v3", "mimo2", "step35")


def count_heads(parts: Sequence[GgufHead]) -> tuple[int, str]:
    """How many heads of a model llama.cpp can run, and why there is none if it is 0. `parts`: of the model's file."""
    found, architecture = draft_head(parts), parts[0].get("general.architecture")
    if found is None and head_blocks(parts[0]):
        return 0, "its file names an MTP head, but lacks its tensors (nextn.eh_proj.weight): fetch another file"
    if found is None or found.kind != "mtp":
        return 0, "its file has no MTP head: choose another model, or another file of this one"
    if architecture not in (*_SINGLE, *_SEVERAL):
        return 0, f"llama.cpp runs no MTP head of the architecture {architecture}"
    if found.layers > 1 and architecture in _SINGLE:
        return 0, f"llama.cpp runs one MTP head of the architecture {architecture}, and its file has {found.layers}"
    return found.layers, ""


def heads_of(path: Path, options: LoadOptions) -> int:
    """How many heads of a checked GGUF file to load. Raises ModelLoadError if there is none, and one is required."""
    if options.head == NO_HEAD:
        return 0
    count, reason = count_heads(read_parts(path))
    if not count and options.head == HEAD:
        raise ModelLoadError(f"{path.stem} cannot draft by itself: {reason}", "head")
    return count


@dataclass(slots=True)
class _Followed:
    """What is known of a slot of the target. Item i of `tokens` and of `hidden` is for the position `first` + i."""

    first: int
    tokens: list[int]
    hidden: Hidden  # of the target
    tree: tuple[list[int], Hidden] | None = None  # of the last pass: its tree, with the trunk before it
    chain: list[int] = field(default_factory=list)  # tokens behind the slot's that the head has read
    own: list[Hidden] = field(default_factory=list)  # its hidden states at these, shape (embedding length,) each

    @property
    def held(self) -> int:
        """How many tokens the slot holds."""
        return self.first + len(self.tokens)


class _HeadContext:
    """A context of one head. `read`: by slot, how many pairs it has read; `chain`: what it has read behind them."""

    def __init__(self, context: Any, layer: int, slots: int) -> None:
        self.context, self.memory = context, lib.llama_get_memory(context)
        self.read, self.chain = [0] * slots, [list[int]() for _ in range(slots)]
        extended.llama_set_embeddings_nextn(context, True, True)
        if layer:
            extended.llama_set_nextn_layer_offset(context, layer)

    def cut(self, slot: int, length: int, chain: int = 0) -> None:
        """Forget all but `length` pairs, and `chain` tokens behind them."""
        if self.read[slot] > length or len(self.chain[slot]) > chain:
            self.read[slot] = min(self.read[slot], length)
            self.chain[slot] = self.chain[slot][:chain]
            lib.llama_memory_seq_rm(self.memory, slot, self.read[slot] + len(self.chain[slot]), -1)

    def give_up(self, slot: int, length: int) -> None:
        """Go on at `length` without what is before it."""
        lib.llama_memory_seq_rm(self.memory, slot, -1, -1)
        self.read[slot], self.chain[slot] = length, []


class LlamaHead:
    """The heads of a model, for all slots of its context. Misuse of the library aborts, so the caller has checked."""

    def __init__(self, model: Any, target: Any, params: Any, heads: int, slots: int) -> None:
        """`model`: that has the heads.
        `target`: the context of the model that they draft for.
        `params`: of that context. They are changed.
        `heads`: how many there are.
        `slots`: of the target.

        Raises NoRoom.
        """
        self.depth = heads if heads > 1 else MOST_DRAFTED
        self._target, self._width = target, int(lib.llama_model_n_embd_out(model))
        self._vocabulary = int(lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model)))
        # Before what it drafts a head reads what waits, in the same pass. It has no trees.
        more = slots * (self.depth + 1)
        params.n_seq_max, params.n_ctx, params.n_batch = slots, params.n_ctx + more, params.n_batch + more
        self._room = int(params.n_batch)
        params.kv_unified, params.n_rs_seq = True, 0
        params.ctx_type, params.ctx_other = lib.LLAMA_CONTEXT_TYPE_MTP, target
        self._contexts = list[_HeadContext]()
        try:
            for layer in range(heads):
                with interrupts_held():
                    context = lib.llama_init_from_model(model, params)
                if not context:
                    raise NoRoom(f"no context for the model's MTP head: leave it out ({take_warnings()})")
                self._contexts.append(_HeadContext(context, layer, slots))
        except BaseException:
            self.close()
            raise
        extended.llama_set_embeddings_nextn(target, True, False)
        self._batch = PassBatch(self._room, 1, self._width)
        nothing = np.empty((0, self._width), dtype=np.float32)
        self._followed = [_Followed(0, [], nothing) for _ in range(slots)]

    def close(self) -> None:
        """Free the contexts."""
        for each in self._contexts:
            lib.llama_free(each.context)
        self._contexts = []

    def passed(self, entries: Sequence[Entry]) -> None:
        """Take the hidden states of a pass of the target over these entries, which were all of its first tokens."""
        count = sum(len(entry.tokens) for entry in entries)
        states = floats(extended.llama_get_embeddings_nextn(self._target), count, self._width)
        at = 0
        for entry in entries:
            rows, at = states[at : at + len(entry.tokens)], at + len(entry.tokens)
            self.cut(entry.slot, entry.start)
            followed = self._followed[entry.slot]
            if entry.parents:
                followed.tree = list(entry.tokens), rows.copy()
            self._append(entry.slot, entry.tokens[: entry.trunk], rows[: entry.trunk])

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Of the tree that the last pass fed to a slot, keep the tokens with these indices in its entry."""
        tree, self._followed[slot].tree = self._followed[slot].tree, None
        if tree is not None and path:
            tokens, rows = tree
            self._append(slot, [tokens[each] for each in path], rows[list(path)])

    def _append(self, slot: int, tokens: Sequence[int], rows: Hidden) -> None:
        followed = self._followed[slot]
        followed.tokens.extend(tokens)
        followed.hidden = np.concatenate([followed.hidden, rows])
        for each in self._contexts:
            if followed.held - each.read[slot] > _UNREAD:
                self._read(each, slot)
        surplus = min(each.read[slot] for each in self._contexts) - followed.first - _KEPT
        if surplus > 0:
            followed.first += surplus
            del followed.tokens[:surplus]
            followed.hidden = followed.hidden[surplus:].copy()

    def cut(self, slot: int, length: int) -> None:
        """Note that a slot holds its first `length` tokens only."""
        followed = self._followed[slot]
        followed.tree, followed.chain, followed.own = None, [], []
        if length > followed.held:  # tokens of whose passes nobody has told
            followed.tokens, followed.hidden = [], followed.hidden[:0]
            for each in self._contexts:
                each.give_up(slot, length)
            followed.first = length
            return
        known = max(0, length - followed.first)
        del followed.tokens[known:]
        followed.hidden, followed.first = followed.hidden[:known], min(followed.first, length)
        for each in self._contexts:
            each.cut(slot, length)

    def copy(self, source: int, destination: int, length: int) -> None:
        """Note that slot `destination` was made to hold the first `length` tokens of `source` and nothing else."""
        self.release(destination)
        followed = self._followed[source]
        known = max(0, length - followed.first)
        self._followed[destination] = _Followed(
            min(followed.first, length), followed.tokens[:known], followed.hidden[:known].copy()
        )
        for each in self._contexts:
            each.read[destination] = min(each.read[source], length)
            lib.llama_memory_seq_cp(each.memory, source, destination, 0, each.read[destination])

    def release(self, slot: int) -> None:
        """Note that a slot was emptied."""
        self._followed[slot] = _Followed(0, [], self._followed[slot].hidden[:0].copy())
        for each in self._contexts:
            each.give_up(slot, 0)

    def clear(self) -> None:
        """Empty all slots, and fill the cells with zeros."""
        for slot in range(len(self._followed)):
            self.release(slot)
        for each in self._contexts:
            lib.llama_memory_clear(each.memory, True)

    def extend(self, batch: Sequence[HeadEntry]) -> Logits:
        """As `Backend.extend_head`."""
        for slot, start, tail in batch:
            if self._followed[slot].held > start:
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

    def _step(self, context: _HeadContext, asked: Sequence[tuple[int, HeadEntry]], found: Logits) -> None:
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
        self._decode(context)
        for (at, (slot, _, tail)), row in zip(asked, ends, strict=True):
            followed, handle = self._followed[slot], context.context
            found[at] = floats(lib.llama_get_logits_ith(handle, row), self._vocabulary)
            followed.own.append(floats(extended.llama_get_embeddings_nextn_ith(handle, row), self._width).copy())
            followed.chain.append(tail[len(followed.chain)])

    def _read(self, context: _HeadContext, slot: int) -> None:
        """Read all pairs of a slot that wait."""
        while context.read[slot] < self._followed[slot].held:
            self._batch.tokens = 0
            context.cut(slot, context.read[slot])
            self._add_pairs(context, slot)
            self._batch.wanted[: self._batch.tokens] = 0
            self._decode(context)

    def _add_pairs(self, context: _HeadContext, slot: int) -> None:
        """Add the pairs of a slot that wait to the batch, as many as have room."""
        followed, first = self._followed[slot], self._batch.tokens
        start = context.read[slot]
        end = min(followed.held, start + self._room - first)
        if start == end:
            return
        tokens = followed.tokens[start - followed.first : end - followed.first]
        self._batch.add(Entry(slot, start, tokens, 0), None)
        at = start - followed.first
        self._batch.inputs[first] = self._state(followed, start - 1)
        self._batch.inputs[first + 1 : self._batch.tokens] = followed.hidden[at : at + len(tokens) - 1]
        context.read[slot] = end

    def _state(self, followed: _Followed, position: int) -> Hidden | float:
        """The target's hidden state at a position; 0 for one that is not kept, behind which another text begins."""
        at = position - followed.first
        row: Hidden | float = followed.hidden[at] if at >= 0 else 0.0
        return row

    def _decode(self, context: _HeadContext) -> None:
        code = self._batch.decode(context.context)
        if code:
            for slot, followed in enumerate(self._followed):  # what the cache holds now is not known
                context.give_up(slot, followed.held)
                followed.chain, followed.own = [], []
            raise EngineFailure(f"the model's MTP head: llama_decode returned {code}: {take_warnings()}")
