"""What all heads share: they follow the slots of the target that they draft for.

A head reads what a pass of the target leaves behind: a row of numbers for each token. `LlamaHead` is told of every
pass, cut and copy, and a head reads the rows when they are needed, many in one pass.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.llama_cpp.batch import PassBatch
from backends.llama_cpp.library import lib, take_warnings
from specpair.command_line.start import interrupts_held
from specpair.engines.backend import Entry, HeadEntry, Logits
from specpair.engines.errors import EngineFailure, NoRoom

_log = logging.getLogger("specpair.llama_cpp")

Hidden = NDArray[np.float32]  # shape (tokens, width of a row): hidden states

_UNREAD = 64  # rows of a slot that wait; with more the head reads them at once
_KEPT = 16  # rows that were read and are kept, so that a slot can be cut there


@dataclass(slots=True)
class FollowedSlot:
    """What is known of a slot of the target. Item i of `tokens` and of `hidden` is for the position `first` + i."""

    first: int
    tokens: list[int]
    hidden: Hidden  # of the target
    tree: tuple[list[int], Hidden] | None = None  # of the last pass: its tree, with the trunk before it
    chain: list[int] = field(default_factory=list)  # tokens behind the slot's that the head has read
    own: list[NDArray[np.float32]] = field(default_factory=list)  # what the head computed at these

    @property
    def held(self) -> int:
        """How many tokens the slot holds."""
        return self.first + len(self.tokens)


class HeadContext:
    """A context of a head. `read`: by slot, how many tokens it has read; `chain`: what it has read behind them."""

    def __init__(self, context: Any, slots: int) -> None:
        self.context, self.memory = context, lib.llama_get_memory(context)
        self.read, self.chain = [0] * slots, [list[int]() for _ in range(slots)]

    def cut(self, slot: int, length: int, chain: int = 0) -> None:
        """Forget all but `length` tokens, and `chain` tokens behind them."""
        if self.read[slot] > length or len(self.chain[slot]) > chain:
            self.read[slot] = min(self.read[slot], length)
            self.chain[slot] = self.chain[slot][:chain]
            lib.llama_memory_seq_rm(self.memory, slot, self.read[slot] + len(self.chain[slot]), -1)

    def give_up(self, slot: int, length: int) -> None:
        """Go on at `length` without what is before it."""
        lib.llama_memory_seq_rm(self.memory, slot, -1, -1)
        self.read[slot], self.chain[slot] = length, []


class LlamaHead(ABC):
    """A head for all slots of a target's context. `depth`: most tokens that it drafts in a row. `name`: for people."""

    depth: int
    name: str

    def __init__(self, model: Any, target: Any, params: Any, slots: int, contexts: int = 1) -> None:
        """`model`: that has the head.
        `target`: the context of the model that it drafts for.
        `params`: for the head's contexts.
        `slots`: of the target.
        `contexts`: how many it needs.

        Misuse of the library aborts, so the caller has checked. Raises NoRoom.
        """
        self._target = target
        self._vocabulary = int(lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model)))
        self._contexts = list[HeadContext]()
        try:
            for _ in range(contexts):
                with interrupts_held():
                    context = lib.llama_init_from_model(model, params)
                if not context:
                    raise NoRoom(f"no context for the head: leave it out (draft: model, or off; {take_warnings()})")
                self._contexts.append(HeadContext(context, slots))
        except BaseException:
            self.close()
            raise
        self._followed = [FollowedSlot(0, [], np.empty((0, 0), dtype=np.float32)) for _ in range(slots)]

    def close(self) -> None:
        """Free the contexts."""
        for each in self._contexts:
            lib.llama_free(each.context)
        self._contexts = []

    @abstractmethod
    def extend(self, batch: Sequence[HeadEntry]) -> Logits:
        """As `Backend.extend_head`."""

    @abstractmethod
    def _rows(self, count: int) -> Hidden:
        """What the target's last pass left behind for its first `count` tokens, until the next pass."""

    @abstractmethod
    def _read(self, context: HeadContext, slot: int) -> None:
        """Read all rows of a slot that wait."""

    def passed(self, entries: Sequence[Entry]) -> None:
        """Take the rows of a pass of the target over these entries, which were all of its first tokens."""
        count = sum(len(entry.tokens) for entry in entries)
        try:
            states = self._rows(count)
        except EngineFailure as error:  # the target's pass is none the worse
            _log.warning("%s: it goes on without these tokens", error)
            for entry in entries:
                self._give_up(entry.slot, entry.start + entry.trunk)
            return
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
        followed.hidden = np.concatenate([followed.hidden, rows]) if followed.tokens else rows.copy()
        followed.tokens.extend(tokens)
        for each in self._contexts:
            if followed.held - each.read[slot] > _UNREAD:
                try:
                    self._read(each, slot)
                except EngineFailure as error:  # the target's pass is none the worse
                    _log.warning("%s: it goes on without what it had read", error)
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
            self._give_up(slot, length)
            return
        known = max(0, length - followed.first)
        del followed.tokens[known:]
        followed.hidden, followed.first = followed.hidden[:known], min(followed.first, length)
        for each in self._contexts:
            each.cut(slot, length)

    def _give_up(self, slot: int, length: int) -> None:
        """Go on behind the first `length` tokens of a slot without what is before."""
        self._followed[slot] = FollowedSlot(length, [], self._followed[slot].hidden[:0].copy())
        for each in self._contexts:
            each.give_up(slot, length)

    def copy(self, source: int, destination: int, length: int) -> None:
        """Note that slot `destination` was made to hold the first `length` tokens of `source` and nothing else."""
        self.release(destination)
        followed = self._followed[source]
        known = max(0, length - followed.first)
        self._followed[destination] = FollowedSlot(
            min(followed.first, length), followed.tokens[:known], followed.hidden[:known].copy()
        )
        for each in self._contexts:
            each.read[destination] = min(each.read[source], length)
            lib.llama_memory_seq_cp(each.memory, source, destination, 0, each.read[destination])

    def release(self, slot: int) -> None:
        """Note that a slot was emptied."""
        self._give_up(slot, 0)

    def clear(self) -> None:
        """Empty all slots, and fill the cells with zeros."""
        for slot in range(len(self._followed)):
            self.release(slot)
        for each in self._contexts:
            lib.llama_memory_clear(each.memory, True)

    def _decode(self, context: HeadContext, batch: PassBatch) -> None:
        """Run a pass of the head. Raises EngineFailure."""
        code = batch.decode(context.context)
        if code:
            for slot, followed in enumerate(self._followed):  # what the cache holds now is not known
                context.give_up(slot, followed.held)
                followed.chain, followed.own = [], []
            raise EngineFailure(f"the model's head: llama.cpp returned {code}: {take_warnings()}")
