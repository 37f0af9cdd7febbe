"""The contract of every engine, with the bookkeeping and the checks that all engines share.

`extend` runs ONE forward pass over several slots. A slot is one sequence's KV cache. Tokens are placed at positions
`start, start + 1, …`, and whatever the slot held from `start` on is forgotten. Rollback of rejected draft tokens is
therefore no operation of its own: it is a smaller `start`.

The rule that goes wrong most often: a session's slot holds the KV of `tokens[:-1]`. The last committed token is
*pending*: known, but not yet fed. Verifying the draft d1 … dk feeds `[pending, d1 … dk]` at `start = len(tokens) - 1`
and returns k + 1 rows of logits. Row i judges d(i+1). The row after the last accepted draft token gives the recovered
token, or the bonus token if all were accepted.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from specpair.engines.entries import Entry as Entry
from specpair.engines.entries import HeadEntry as HeadEntry
from specpair.engines.entries import check_batch, check_head_batch
from specpair.engines.errors import BackendError, BadEntry, ModelLoadError
from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.sampling.top_logits import Logits as Logits
from specpair.speculation.sampling.top_logits import TopLogits
from specpair.speculation.sampling.top_logits import TopLogitsSpec as TopLogitsSpec

_LOOKED_AT = 8  # logits of a row: a NaN or an infinity in the model's last layer reaches every one of them

Rows = Logits | Sequence[TopLogits]
R = TypeVar("R", bound=Sequence[Logits | Sequence[TopLogits]])
Progress = Callable[[float], None]
DEFAULT_TEMPLATE = "default"  # the name of the chat template that a model's files give without one


class Backend(ABC):
    """An engine with a loaded model. One thread at a time may use it.

    `slots`            how many sequences the engine holds at once, each with a KV cache
    `context_length`   tokens that a slot can hold
    `max_batch_tokens` most tokens in one `extend`, over all entries
    `max_rollback`     how many of a slot's last tokens a `start` above 0 can roll back; None: any number
    `even_width`       an entry of up to this many tokens, alone in its pass, leaves bit for bit the KV that passes of
                       one token each would leave; None: not known
    `reuse_step`       a prefix taken from another text ends at a multiple of this many tokens
    `reuse_rest`       and leaves at least so many to read
    `wide_pass`        from this many tokens on, a pass has other kernels than narrower ones, and so other last bits.
                       The width of narrower ones does not matter if it is `reuse_rest` or more. If given, the end of a
                       prompt is read in a narrow pass (see `specpair.engines.prompt_passes`); None: it is not
    `can_copy`         whether `copy` works; if not, it raises BadEntry
    `can_splice`       whether `splice` works; if not, it raises BadEntry
    `takes_trees`      whether entries may have `parents`
    `keeps_any_path`   whether passes behind any path that is kept compute what they would behind a chain; else, bit for
                       bit, only behind the nodes that follow one another in the entry, from the first on
    `max_leaves`       most leaves of an entry's tree; None: any number
    `max_nodes`        most nodes of an entry's tree; None: any number
    `runs_on`          the device and the number type of the model, in words, for people
    `threads`          CPU threads that a pass keeps busy; 0: it runs on other devices
    `head_depth`       most tokens that the model's head drafts in a row; 0: it has none, or it was not loaded
    `head_name`        what kind of head that is, for people
    `has_top_logits`   whether `extend_top_logits` returns top logits: for engines that are slow to fetch whole rows
    """

    name: str
    model_name: str
    vocabulary: Vocabulary
    slots: int
    context_length: int
    max_batch_tokens: int
    max_rollback: int | None = None
    even_width: int | None = None
    reuse_step: int = 1
    reuse_rest: int = 1
    wide_pass: int | None = None
    can_copy: bool = True
    can_splice: bool = False
    takes_trees: bool = False
    keeps_any_path: bool = True
    max_leaves: int | None = None
    max_nodes: int | None = None
    head_depth: int = 0
    head_name: str = "MTP head"
    has_top_logits: bool = False
    chat_template: str | None = None  # in Jinja; None: the model has none
    chat_templates: Mapping[str, str] = MappingProxyType({})  # all that its files have, by name
    kv_bytes: int = 0  # bytes of the KV cache of all slots
    devices: int = 1  # devices that share the model
    runs_on: str = "the CPU"
    threads: int = 0

    def __init__(self) -> None:
        """Raises ModelLoadError if the context is too short to serve anything."""
        if self.context_length < 2:
            raise ModelLoadError(
                f"context is {self.context_length}, a prompt and an answer take at least 2 tokens", "context"
            )
        self._lengths = [0] * self.slots
        self._overflowed: set[int] = set()  # slots that hold NaN or infinity
        self._trees: list[Entry | None] = [None] * self.slots  # of the last pass, those that may be kept yet

    def take_chat_templates(self, named: Mapping[str, str]) -> None:
        """Serve these chat templates, by name, and the usual one where none is chosen."""
        self.chat_templates, self.chat_template = named, named.get(DEFAULT_TEMPLATE)

    def length(self, slot: int) -> int:
        """How many tokens slot number `slot` holds. Raises BadEntry for a slot that does not exist."""
        self._check_slot(slot)
        return self._lengths[slot]

    def has_overflowed(self, slot: int) -> bool:
        """Whether slot number `slot` holds NaN or infinity, as the logits of a pass showed; `release` clears it."""
        return slot in self._overflowed

    def extend(self, batch: Sequence[Entry]) -> list[Logits]:
        """Run ONE forward pass. Returns, per entry, float32 logits of shape (len(tokens) - logits_from, vocab).

        The arrays are valid until the next `extend`: decide or copy before it. Raises BadEntry with nothing changed,
        CacheFull or EngineFailure with the batch's slots emptied.
        """
        return self._tracked(batch, lambda: self._forward(batch))

    def extend_top_logits(self, batch: Sequence[Entry], wanted: Sequence[TopLogitsSpec]) -> Sequence[Rows]:
        """Run ONE forward pass. Returns, per entry, the top logits of each row, or whole rows: float32 of shape
        (rows, below), where they are wanted or the engine has no top logits.

        `wanted[i]` is for `batch[i]`. The result is valid until the next pass, as in `extend`. A `TopLogits` raises
        EngineFailure when it needs the whole row and cannot fetch it.
        """
        size = self.vocabulary.size
        if len(wanted) != len(batch) or any(
            not 1 <= (each.below if each.size is None else each.size) <= each.below <= size for each in wanted
        ):
            raise BadEntry(
                f"wanted is {list(wanted)}: expected are {len(batch)} items, one an entry, "
                f"each with 1 <= size <= below <= {size}"
            )
        if self.has_top_logits:
            return self._tracked(batch, lambda: self._extend_top_logits(batch, wanted))
        whole = zip(self.extend(batch), wanted, strict=True)
        return [rows if each.below == size else rows[:, : each.below] for rows, each in whole]

    def _tracked(self, batch: Sequence[Entry], run: Callable[[], R]) -> R:
        """Check `batch`, call `run` for its forward pass, update its slots' lengths; on an error, empty these slots."""
        check_batch(self, batch)
        try:
            result = run()
        except BackendError:
            for entry in batch:
                self.release(entry.slot)
            raise
        for entry, rows in zip(batch, result, strict=True):
            self._lengths[entry.slot] = entry.start + entry.trunk
            self._trees[entry.slot] = entry if entry.parents else None
            if overflowed(rows):
                self._overflowed.add(entry.slot)
        return result

    def extend_head(self, batch: Sequence[HeadEntry]) -> Logits:
        """What the model's head predicts behind each tail: float32 logits of shape (len(batch), vocab).

        The head reads from the target's hidden states behind what a slot holds, then from its own ones, which is quick
        where the tails of a slot begin like its last one. Raises BadEntry with nothing changed, and EngineFailure: the
        target's slots stay as they are, and the head goes on without what it had read.
        """
        check_head_batch(self, batch)
        return self._extend_head(batch)

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Of the tree that the last pass fed to a slot, keep the tokens with these indices in its entry, each the child
        of the one before it and the first a child of the last token before the tree. Raises BadEntry with nothing
        changed, or EngineFailure with the slot emptied."""
        self._check_slot(slot)
        entry = self._trees[slot]
        if entry is None:
            raise BadEntry(f"slot {slot}: the last pass fed no tree to it, or its path was chosen")
        before = entry.trunk - 1
        for index in path:
            if not entry.trunk <= index < len(entry.tokens) or index - entry.parents[index - entry.trunk] != before:
                raise BadEntry(f"slot {slot}: {list(path)} is no path through the tree of {list(entry.parents)}")
            before = index
        try:
            self._keep(entry, path)
        except BackendError:
            self.release(slot)
            raise
        self._lengths[slot] += len(path)
        self._trees[slot] = None

    def reread(self, slot: int, length: int) -> int:
        """How many of the first `length` tokens of a slot a pass reads again if it starts behind them: 0 for keys and
        values, more for an engine that keeps a state of few positions only. `extend` includes them. Raises BadEntry."""
        self._check_slot(slot)
        return 0

    def copy(self, source: int, destination: int, length: int) -> None:
        """Make slot `destination` hold the first `length` tokens of slot `source` and nothing else. Raises BadEntry."""
        if not self.can_copy:
            raise BadEntry(f"{self.name} cannot copy slots")
        self._check_slot(source)
        self._check_slot(destination)
        held = self._lengths[source]
        if source == destination or not 0 <= length <= held:
            raise BadEntry(f"cannot copy {length} tokens from slot {source}, which holds {held}, to slot {destination}")
        self._copy(source, destination, length)
        self._lengths[destination], self._trees[destination] = length, None
        if source in self._overflowed:
            self._overflowed.add(destination)

    def splice(self, slot: int, start: int, end: int, source: int | None = None, first: int = 0) -> None:
        """Replace the tokens from `start` up to `end` of a slot by those of slot `source` from `first` on; None: by
        nothing. What follows them moves up. `source` is emptied.

        Nothing is computed again: the tokens behind keep what they took in of the replaced ones. Only the positions
        change. No other slot may share tokens with these two by `copy`, except those before `start` and `first`. A
        model whose attention has a window may lose tokens that fall out of it. Raises BadEntry.
        """
        if not self.can_splice:
            raise BadEntry(f"{self.name} cannot move tokens within a slot here")
        self._check_slot(slot)
        held, new = self._lengths[slot], 0
        if source is not None:
            self._check_slot(source)
            new = self._lengths[source] - first
        longer = held - (end - start) + new
        if source == slot or not 0 <= start <= end <= held or first < 0 or new < 0 or longer > self.context_length:
            raise BadEntry(
                f"cannot replace tokens {start} to {end} of slot {slot}, which holds {held}, by {new} of slot {source}"
            )
        self._splice(slot, start, end, source, first)
        if source is not None:
            self.release(source)
        self._lengths[slot], self._trees[slot] = longer, None

    def release(self, slot: int) -> None:
        """Empty slot number `slot`. Raises BadEntry for a slot that does not exist.

        Where its logits were NaN or infinite, the memory of its keys and values is cleared: attention multiplies what
        it masks by 0, and 0 times NaN is NaN. An engine short of memory may empty other slots then (see `length`).
        """
        self._check_slot(slot)
        if slot in self._overflowed:
            self._clear(slot)
            self._overflowed.discard(slot)
        else:
            self._release(slot)
        self._lengths[slot], self._trees[slot] = 0, None

    @abstractmethod
    def close(self) -> None:
        """Free the model. No other method may be called afterwards; a second close does nothing."""

    @abstractmethod
    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        """`extend` after its checks."""

    def _extend_top_logits(self, batch: Sequence[Entry], wanted: Sequence[TopLogitsSpec]) -> Sequence[Rows]:
        """`extend_top_logits` after its checks, for engines with `has_top_logits`."""
        raise NotImplementedError

    def _extend_head(self, batch: Sequence[HeadEntry]) -> Logits:
        """`extend_head` after its checks, for engines with a `head_depth`."""
        raise NotImplementedError

    def _copy(self, source: int, destination: int, length: int) -> None:
        """`copy` after its checks, for engines with `can_copy`."""
        raise NotImplementedError

    def _splice(self, slot: int, start: int, end: int, source: int | None, first: int) -> None:
        """`splice` after its checks, for engines with `can_splice`. `source` is released afterwards."""
        raise NotImplementedError

    def _keep(self, entry: Entry, path: Sequence[int]) -> None:
        """`keep` after its checks, for engines that take trees."""
        raise NotImplementedError

    @abstractmethod
    def _release(self, slot: int) -> None:
        """`release` after its checks."""

    def _clear(self, slot: int) -> None:
        """`release` of a slot that holds NaN or infinity, for engines whose `_release` leaves them in memory."""
        self._release(slot)

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self.slots:
            raise BadEntry(f"slot {slot} does not exist: this backend has slots 0 to {self.slots - 1}")


def overflowed(rows: Logits | Sequence[TopLogits]) -> bool:
    """Whether any of these rows of one slot comes from NaN or infinity in the model.

    Looks at a few logits of a row, in time that does not depend on the vocabulary: 5 microseconds for a few rows. -inf
    alone is no fault: some models mask ids. A single bad logit elsewhere is found where a token is chosen.
    """
    if isinstance(rows, np.ndarray):
        few = rows[:, :_LOOKED_AT]
        return bool(few.size) and not bool((few < inf).all())  # nor NaN
    return any(not isfinite(top.log_sum) or not (len(top.logits) and top.logits[0] < inf) for top in rows)
