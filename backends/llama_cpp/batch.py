"""The input of a llama.cpp pass: tokens with their positions and sequences, also for trees.

In a tree each leaf has a sequence, and a token belongs to those of the leaves below it. So a token attends to its own
path, and all paths share the cells of what they have in common. The first leaf's sequence is the slot's own, so that a
chain needs no other; the others' share the slot's cells before the pass. After it they stay until a path is kept or the
slot is used again.

`LlamaStates` are the states of recurrent and hybrid models, of which llama.cpp holds the one behind a slot's last
token.
Some architectures keep the states of the last few tokens themselves (`n_rs_seq`): they take back tokens of the last
pass without a point and without reading again. Only in a context of one slot: llama.cpp moves the states of slots about
to make them neighbours, and leaves those of earlier tokens where they were.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backends.llama_cpp.library import lib, take_warnings
from backends.recurrent import POINTS
from specpair.engines.backend import Entry
from specpair.engines.errors import EngineFailure, ModelLoadError
from specpair.speculation.draft import depths, leaves, paths

_LEAVES = 8  # of a tree, at most
_SEQUENCES = 128  # of all slots, at most: llama.cpp keeps room for a row of logits of each


def leaves_of(slots: int, tokens: int) -> int:
    """How many leaves a slot's tree may have. `tokens`: maximum of a pass; llama.cpp aborts if sequences outnumber
    it."""
    return max(1, min(_LEAVES, _SEQUENCES // slots, tokens // slots))


class TreeSequences:
    """The sequences of all slots' trees. Slot s of n has the sequences s, n + s, 2n + s, …"""

    def __init__(self, memory: Any, slots: int) -> None:
        """`memory`: llama.cpp's handle of the unified cache."""
        self._memory, self._slots = memory, slots
        self._paths: list[list[frozenset[int]]] = [[] for _ in range(slots)]  # indices in the entry, of each sequence's

    def sequences(self, slot: int) -> list[int]:
        """The sequences that a slot's tree has, besides the slot's own."""
        return [slot + self._slots * number for number in range(1, len(self._paths[slot]))]

    def grow(self, entry: Entry) -> list[list[int]]:
        """Make the sequences for an entry's tree, in a slot without tokens from its start on. Returns each token's
        sequences."""
        on_path, ends = paths(entry.parents), leaves(entry.parents)
        self._paths[entry.slot] = [frozenset((np.flatnonzero(on_path[end]) + entry.trunk).tolist()) for end in ends]
        found = self.sequences(entry.slot)
        for other in found if entry.start else ():
            lib.llama_memory_seq_cp(self._memory, entry.slot, other, 0, entry.start)
        every = [entry.slot, *found]
        below = [np.flatnonzero(on_path[ends, node]) for node in range(len(entry.parents))]
        return [every] * entry.trunk + [[every[at] for at in each] for each in below]

    def keep(self, entry: Entry, path: Sequence[int]) -> None:
        """Keep only the tokens of the trunk and of `path` in the slot's sequence, as in `Backend.keep`."""
        slot, first = entry.slot, entry.start + entry.trunk
        number = next(at for at, nodes in enumerate(self._paths[slot]) if nodes.issuperset(path))
        shared = sum(node in self._paths[slot][0] for node in path)
        lib.llama_memory_seq_rm(self._memory, slot, first + shared, -1)
        if number:
            other = self.sequences(slot)[number - 1]
            lib.llama_memory_seq_cp(self._memory, other, slot, first + shared, first + len(path))
        self.forget(slot)

    def forget(self, slot: int) -> None:
        """Remove the sequences of a slot's tree, except the slot's sequence."""
        for other in self.sequences(slot):
            lib.llama_memory_seq_rm(self._memory, other, -1, -1)
        self._paths[slot] = []


class PassBatch:
    """The llama_batch of all passes over NumPy arrays, which fill 20 times as fast as C structs.

    `tokens`: in it so far. `wanted`: by token, whether it gets logits. `inputs`: by token, what is fed beside it.
    """

    def __init__(self, room: int, leaves: int, width: int = 0, *, ids: bool = True) -> None:
        """`room`: maximum tokens of a pass. `leaves`: maximum of a tree. `width`: numbers in a row of `inputs`.

        `ids`: whether the pass reads the tokens themselves; else `inputs` alone.
        """
        self.tokens = 0
        self.inputs = np.zeros((room, width), dtype=np.float32)
        self.wanted = np.zeros(room, dtype=np.int8)
        self._ids = np.zeros(room, dtype=np.int32)
        self._positions = np.zeros(4 * room, dtype=np.int32)  # up to four of a token without an id: M-RoPE
        self._sequence_counts = np.ones(room, dtype=np.int32)
        self._sequences = np.zeros((room, leaves), dtype=np.int32)
        step = self._sequences.strides[0]
        self._sequence_pointers = (self._sequences.ctypes.data + step * np.arange(room)).astype(np.uint64)
        int32s = ctypes.POINTER(ctypes.c_int32)
        self._batch = lib.llama_batch(
            n_tokens=0,
            token=self._ids.ctypes.data_as(int32s) if ids else None,
            embd=self.inputs.ctypes.data_as(ctypes.POINTER(ctypes.c_float)) if width else None,
            pos=self._positions.ctypes.data_as(int32s),
            n_seq_id=self._sequence_counts.ctypes.data_as(int32s),
            seq_id=self._sequence_pointers.ctypes.data_as(ctypes.POINTER(int32s)),
            logits=self.wanted.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def add(self, entry: Entry, trees: TreeSequences | None = None) -> None:
        """Append an entry to the batch, its tree, if it has one, in sequences of `trees`."""
        slot, start, tokens, logits_from, parents = entry
        at, end = self.tokens, self.tokens + len(tokens)
        self._ids[at:end] = tokens
        self._positions[at:end] = range(start, start + len(tokens))
        self._sequences[at:end, 0], self._sequence_counts[at:end] = slot, 1
        if parents and trees is not None:
            before = start + entry.trunk - 1
            self._positions[at + entry.trunk : end] = [before + each for each in depths(parents)]
            for row, sequences in enumerate(trees.grow(entry), at):
                self._sequences[row, : len(sequences)], self._sequence_counts[row] = sequences, len(sequences)
        self.wanted[at : at + logits_from] = 0
        self.wanted[at + logits_from : end] = 1
        self.tokens = end

    def add_inputs(self, slot: int, start: int, rows: NDArray[np.float32]) -> None:
        """Append rows without tokens, the first at position `start`, to a batch without any. All get logits."""
        count = len(rows)
        positions = np.arange(start, start + count)
        self.inputs[:count], self._sequences[:count, 0], self.wanted[:count] = rows, slot, 1
        self._positions[: 4 * count] = np.concatenate([positions, positions, positions, np.zeros_like(positions)])
        self.tokens = count

    def encode(self, context: Any) -> int:
        """Run the pass of an encoder. Returns the library's code: 0 if it worked."""
        self._batch.n_tokens = self.tokens
        return int(lib.llama_encode(context, self._batch))

    def decode(self, context: Any) -> int:
        """Run the pass. Returns the library's code: 0 if it worked, 1 for no room."""
        self._batch.n_tokens = self.tokens
        return int(lib.llama_decode(context, self._batch))


_KEPT_STATES = 8  # tokens that an architecture with `n_rs_seq` takes back by itself
_SHARE = (
    16  # the states that it keeps for them take this part of the weights at most: a pass of several tokens writes them
)
_PARTIAL = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY


class StateSizes(NamedTuple):
    """The memory of one slot of a recurrent or hybrid model."""

    token_bytes: int  # keys and values of one token; 0 for a model without attention
    state_bytes: int
    kept_states: int  # what to set as `n_rs_seq`: 0 where the architecture has no such thing

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot that do not depend on the length of its text."""
        return self.state_bytes * (1 + self.kept_states + POINTS)


def state_sizes(model: Any, kv_type: int) -> StateSizes | None:
    """Measured in a context of two tokens. None: the model has no recurrent state. Raises ModelLoadError.

    `kv_type`: the number of ggml's type of keys and values.
    """
    if not (lib.llama_model_is_recurrent(model) or lib.llama_model_is_hybrid(model)):
        return None
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 64, 8, 8, 1
    params.n_threads = params.n_threads_batch = 1
    params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.type_k = params.type_v = kv_type
    params.n_rs_seq = 1
    context = lib.llama_init_from_model(model, params)
    if not context:
        raise ModelLoadError(f"no context of 64 tokens, to measure a slot's memory ({take_warnings()})")
    try:
        takes_back = lib.llama_n_rs_seq(context) > 0
        sizes = []
        for _ in range(2):
            token = (ctypes.c_int32 * 1)(0)
            if lib.llama_decode(context, lib.llama_batch_get_one(token, 1)) != 0:
                raise ModelLoadError(f"the model fails at its first tokens ({take_warnings()})")
            sizes.append(lib.llama_state_seq_get_size(context, 0))
        state = lib.llama_state_seq_get_size_ext(context, 0, _PARTIAL)
    finally:
        lib.llama_free(context)
    most = lib.llama_model_size(model) // _SHARE // state
    return StateSizes(sizes[1] - sizes[0], state, min(_KEPT_STATES, most) if takes_back else 0)


class LlamaStates:
    """The states of the slots of one context, for `backends.recurrent`."""

    def __init__(self, context: Any) -> None:
        self._context, self._memory = context, lib.llama_get_memory(context)
        self.kept_states = int(lib.llama_n_rs_seq(context))

    def save(self, slot: int, spare: Any) -> Any:
        size = lib.llama_state_seq_get_size_ext(self._context, slot, _PARTIAL)
        state = spare if spare is not None and len(spare) == size else (ctypes.c_uint8 * size)()
        if not lib.llama_state_seq_get_data_ext(self._context, state, size, slot, _PARTIAL):
            raise EngineFailure(f"the state of slot {slot} could not be copied: {take_warnings()}")
        return state

    def restore(self, slot: int, state: Any) -> None:
        if not lib.llama_state_seq_set_data_ext(self._context, state, len(state), slot, _PARTIAL):
            raise EngineFailure(f"a state could not be put back in slot {slot}: {take_warnings()}")

    def cut(self, slot: int, length: int, back: int) -> None:
        lib.llama_memory_seq_rm(self._memory, slot, length, -1)

    def empty(self, slot: int) -> None:
        lib.llama_memory_seq_rm(self._memory, slot, -1, -1)

    def copy(self, source: int, destination: int, length: int) -> None:
        lib.llama_memory_seq_cp(self._memory, source, destination, 0, length)
