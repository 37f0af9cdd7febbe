"""GGUF models on llama.cpp (CPU, Metal, CUDA) through llama-cpp-python's low-level API.

All slots share one unified KV cache, so that a batch over any slots and widths is one forward pass, and copying a
prefix moves no data. Misuse of the library aborts the process, so everything is checked before a call. Recurrent and
hybrid models roll back by `backends/recurrent.py`.

The last bits of the logits depend on the width of a pass and on the cells where the cache holds a slot's tokens:
attention sums in the order of cells, and with several slots in one cache that order is accidental. `deterministic`
gives each slot a cache and a pass of its own, of widths that take one code path; weights should not be repacked then.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from backends.llama_cpp.batch import LlamaStates, PassBatch, TreeSequences, leaves_of, state_sizes
from backends.llama_cpp.head_slots import LlamaHead
from backends.llama_cpp.heads import TargetHead
from backends.llama_cpp.library import floats, lib, take_warnings
from backends.llama_cpp.model import (
    KV_TYPES,
    LlamaVocabulary,
    chat_templates,
    check_generates,
    check_gguf,
    kv_bytes_per_token,
    load_model,
)
from backends.llama_cpp.widths import ONE_PATH, equal_up_to
from backends.machine import available_bytes, check_room, slots_that_fit, threads_for
from backends.recurrent import JOINED, RecurrentStates
from specpair.command_line.start import interrupts_held
from specpair.engines.backend import Backend, Entry, HeadEntry, Logits, Progress, overflowed
from specpair.engines.errors import CacheFull, EngineFailure, ModelLoadError, NoRoom
from specpair.engines.load_options import COARSE_KV, MOST_SLOTS, LoadOptions

# Types of weights with one kernel for all widths below ONE_PATH on CPUs; docs/strategies.md has the others.
_ONE_KERNEL = lib.LLAMA_FTYPE_MOSTLY_Q8_0, lib.LLAMA_FTYPE_MOSTLY_Q4_0

_TILE = 64  # rows from which on flash attention on CPUs sums in float32 tiles; fewer take another kernel
# Multiplication takes repacked weights by groups of 4 rows, AMX by tiles of 16; the rows behind take another kernel.
_ROWS = 16 if b"AMX_INT8 = 1" in lib.llama_print_system_info() else 4
_FEWEST = max(8, _ROWS)  # rows; fewer take another kernel for K-quants that were not repacked


class LlamaBackend(Backend):
    """A GGUF model with one llama.cpp context."""

    name = "llama_cpp"

    def __init__(self, options: LoadOptions, progress: Progress | None = None, *, extra_buffers: bool = True) -> None:
        """Load the model in `options.model`. Raises ModelLoadError.

        `progress` is called with the share loaded, 0 to 1.
        `extra_buffers`: whether weights may be repacked for the processor (AMX, wider vectors), which is faster.
        """
        path = check_gguf(options.model)
        if options.kv_type not in KV_TYPES:
            raise ModelLoadError(
                f"kv_type {options.kv_type!r} is unknown: choose one of {', '.join(KV_TYPES)}", "kv_type"
            )
        self._model: Any = None
        self._context: Any = None
        self._head: LlamaHead | None = None
        self._states: RecurrentStates | None = None  # None: attention in every layer
        self._target_head = TargetHead(path, options)
        lib.llama_backend_init()
        try:
            self._model = load_model(path, options, progress, extra_buffers, with_heads=self._target_head.in_target)
            self._target_head.load(self._model, extra_buffers=extra_buffers)
            self.model_name = path.stem
            check_generates(self._model, self.model_name)
            self.vocabulary = LlamaVocabulary(self._model)
            self.take_chat_templates(chat_templates(self._model))
            trained = lib.llama_model_n_ctx_train(self._model)
            self.context_length = options.context_length or min(trained, 4096)
            sizes = state_sizes(self._model, KV_TYPES[options.kv_type])
            if sizes is not None and options.deterministic:
                raise ModelLoadError(
                    f"deterministic is for models with attention in every layer, not for {self.model_name}",
                    "deterministic",
                )
            token_bytes = sizes.token_bytes if sizes else kv_bytes_per_token(self._model, options.kv_type)
            token_bytes += self._target_head.kv_bytes_per_token()
            slot_bytes = sizes.slot_bytes if sizes else 0
            self.slots = options.slots or slots_that_fit(
                token_bytes * self.context_length + slot_bytes, available_bytes()
            )
            if not 1 <= self.slots <= MOST_SLOTS:
                raise ModelLoadError(f"slots is {self.slots}, llama.cpp takes 1 to {MOST_SLOTS}", "slots")
            self.can_splice = not (options.deterministic or sizes or options.kv_type in COARSE_KV)
            with_spares = self.slots + options.spare_slots
            if self.can_splice and self.context_length >= options.spare_from and with_spares <= MOST_SLOTS:
                self.slots = with_spares
            contexts, further = self.slots, 0
            if options.shared_cells is not None and not options.deterministic:
                contexts, further = options.contexts, options.shared_cells
            self.kv_bytes = token_bytes * (contexts * self.context_length + further) + slot_bytes * self.slots
            if not lib.llama_supports_gpu_offload():
                check_room(self, available_bytes())
            self.max_batch_tokens = max(options.batch_tokens, self.slots, 2)
            self._deterministic = options.deterministic
            threads = options.threads or threads_for(lib.llama_model_size(self._model))
            self._widest = ONE_PATH  # tokens of a pass, where `deterministic`
            if lib.llama_supports_gpu_offload() and options.gpu_layers != 0:
                self.runs_on = "a GPU, as many layers as gpu_layers says"
            else:
                self.threads = threads
            if not (self._deterministic or sizes or lib.llama_supports_gpu_offload()):
                self.even_width = ONE_PATH if lib.llama_model_ftype(self._model) in _ONE_KERNEL else None
            if not (self._deterministic or sizes):
                self.reuse_step, self.reuse_rest, self.wide_pass = _ROWS, _FEWEST, _TILE
            # For each slot the tokens that are read again before those of a batch.
            self._room = self.max_batch_tokens + (JOINED * self.slots if sizes else 0) + 1
            kept_states = sizes.kept_states if sizes and self.slots == 1 else 0
            # For each context one cell more, for the padding token of `_pass`.
            cells = contexts * (self.context_length + 1) + further
            if not (self._deterministic or sizes):
                self.max_leaves = leaves_of(self.slots, min(self._room, cells))
                self.takes_trees = self.max_leaves > 1
                self.keeps_any_path = False  # it adds up in the order of the cells
            self._open_context(options, threads, cells, kept_states)
            self._memory = lib.llama_get_memory(self._context)
            self.can_splice = self.can_splice and bool(lib.llama_memory_can_shift(self._memory))
            self._sequences = TreeSequences(self._memory, self.slots)
            self._batch = PassBatch(self._room, self.max_leaves or 1)
            super().__init__()
            if sizes:
                states = LlamaStates(self._context)
                self._states = RecurrentStates(
                    states,
                    self.slots,
                    self._read,
                    self.max_batch_tokens,
                    self.vocabulary.size,
                    states.kept_states,
                )
            else:
                self._probe_rollback()
            if self._deterministic:
                self._widest = self._try_widths()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._head is not None:
            self._head.close()
            self._head = None
        if self._context is not None:
            lib.llama_free(self._context)
            self._context = None
        self._target_head.close()
        if self._model is not None:
            lib.llama_model_free(self._model)
            self._model = None

    def _open_context(self, options: LoadOptions, threads: int, cells: int, kept_states: int) -> None:
        params = lib.llama_context_default_params()
        params.n_seq_max = self.slots * (self.max_leaves or 1)
        params.n_ctx = cells
        params.n_rs_seq = kept_states
        params.n_batch = self._room
        params.n_ubatch = min(params.n_batch, ONE_PATH if self._deterministic else 512)
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = not self._deterministic
        params.swa_full = True  # else sliding windows forget what a rollback needs
        params.flash_attn_type = (
            lib.LLAMA_FLASH_ATTN_TYPE_ENABLED if options.flash_attention else lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        params.type_k = params.type_v = KV_TYPES[options.kv_type]
        params.no_perf = True
        with interrupts_held():
            self._context = lib.llama_init_from_model(self._model, params)
        if not self._context:
            raise NoRoom(
                f"no context for {self.slots} slots of {self.context_length} tokens ({self.kv_bytes / 2**30:.2f} GiB "
                f"of KV cache): lower slots or context ({take_warnings()})"
            )
        self._head = self._target_head.open(self._context, params, self.slots)
        if self._head is not None:
            self.head_depth, self.head_name = self._head.depth, self._head.name

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self._deterministic:
            return [self._in_pieces(entry) for entry in batch]
        return self._pass(batch if self._states is None else [self._states.prepared(entry) for entry in batch])

    def reread(self, slot: int, length: int) -> int:
        self._check_slot(slot)
        return 0 if self._states is None else self._states.reread(slot, length)

    def _read(self, entry: Entry) -> None:
        self._pass([entry])

    def _in_pieces(self, entry: Entry) -> Logits:
        """Run passes of at most `_widest` tokens over one entry. Returns a copy of its logits."""
        slot, start, tokens, logits_from, _ = entry
        step = self._widest
        pieces = [
            Entry(slot, start + at, tokens[at : at + step], min(max(logits_from - at, 0), len(tokens[at : at + step])))
            for at in range(0, len(tokens), step)
        ]
        return np.concatenate([self._pass([piece])[0].copy() for piece in pieces])

    def _pass(self, batch: Sequence[Entry]) -> list[Logits]:
        """Run one forward pass. Returns, per entry, logits in the library's memory, which the next pass overwrites."""
        self._batch.tokens = 0
        for entry in batch:
            slot, start = entry.slot, entry.start
            unkept = self._trees[slot] is not None
            if self._states is None and (start < self._lengths[slot] or unkept):
                lib.llama_memory_seq_rm(self._memory, slot, start, -1)
            if unkept:
                self._sequences.forget(slot)
            self._batch.add(entry, self._sequences)
        padded = self._deterministic and self._batch.tokens == 1
        if padded:  # a width of 1 would take another kernel; no token attends to the padding token behind it
            padding = Entry(batch[-1].slot, batch[-1].start + 1, [0], 1)
            self._batch.add(padding, self._sequences)
        at, above = self._batch.tokens, self._agreeing_rows()
        code = self._batch.decode(self._context)
        if padded:
            lib.llama_memory_seq_rm(self._memory, padding.slot, padding.start, -1)
        if code == 1:
            raise CacheFull(f"the KV cache has no room for {at} more tokens")
        if code != 0:
            raise EngineFailure(f"llama_decode returned {code}: {take_warnings()}")
        if self._head is not None:
            self._head.passed(batch)
        ends = np.cumsum([len(entry.tokens) - entry.logits_from for entry in batch])
        block: Logits = np.empty((0, self.vocabulary.size), dtype=np.float32)
        if ends[-1]:
            shape = int(ends[-1]) + above, self.vocabulary.size
            block = floats(lib.llama_get_logits(self._context), *shape)[above:]
        return np.split(block, ends[:-1])

    def _agreeing_rows(self) -> int:
        """If `deterministic`, ask for at least two rows, since the last layer computes only the wanted rows.

        Returns how many rows come before the first one that the caller wants.
        """
        wanted = self._batch.wanted[: self._batch.tokens]
        if not self._deterministic or np.count_nonzero(wanted) != 1:
            return 0
        row = int(wanted.argmax())
        wanted[row - 1 if row else 1] = 1
        return min(row, 1)

    def _copy(self, source: int, destination: int, length: int) -> None:
        self._release(destination)  # llama.cpp would merge the copy with what the slot holds
        if self._states is not None:
            self._states.copy(source, destination, length)
        elif self._deterministic:  # llama.cpp copies separate caches only whole
            lib.llama_memory_seq_cp(self._memory, source, destination, -1, -1)
            lib.llama_memory_seq_rm(self._memory, destination, length, -1)
        else:
            lib.llama_memory_seq_cp(self._memory, source, destination, 0, length)
        if self._head is not None:
            self._head.copy(source, destination, length)

    def _extend_head(self, batch: Sequence[HeadEntry]) -> Logits:
        assert self._head is not None
        rows = self._head.extend(batch)
        if overflowed(rows):  # NaN in a cell would reach other slots
            self._head.clear()
        return rows

    def _splice(self, slot: int, start: int, end: int, source: int | None, first: int) -> None:
        self._sequences.forget(slot)
        new = 0 if source is None else self._lengths[source] - first
        lib.llama_memory_seq_rm(self._memory, slot, start, end)
        if end < self._lengths[slot] and new != end - start:
            lib.llama_memory_seq_add(self._memory, slot, end, -1, new - (end - start))
        if source is not None and new:
            # A cell has one position for all sequences: those that the slots share must not move.
            lib.llama_memory_seq_rm(self._memory, source, 0, first)
            lib.llama_memory_seq_add(self._memory, source, first, -1, start - first)
            lib.llama_memory_seq_cp(self._memory, source, slot, start, start + new)
        if self._head is not None:  # which reads pairs, and these have other neighbours now
            self._head.release(slot)

    def _keep(self, entry: Entry, path: Sequence[int]) -> None:
        self._sequences.keep(entry, path)
        if self._head is not None:
            self._head.keep(entry.slot, path)

    def _release(self, slot: int) -> None:
        self._sequences.forget(slot)
        lib.llama_memory_seq_rm(self._memory, slot, -1, -1)
        if self._head is not None:
            self._head.release(slot)
        if self._states is not None:
            self._states.forget(slot)

    def _clear(self, slot: int) -> None:
        """Fill all cells with zeros, and restore those of other slots: llama.cpp cannot clear single cells."""
        self._sequences.forget(slot)
        others = [other for other, length in enumerate(self._lengths) if length and other != slot]
        states = {other: self._states_of(other) for other in others}
        lib.llama_memory_clear(self._memory, True)
        if self._head is not None:
            self._head.clear()
        if self._states is not None:
            self._states.forget(slot)
        for other, parts in states.items():
            for sequence, state in parts:
                if not lib.llama_state_seq_set_data(self._context, state, len(state), sequence):
                    self._release(other)  # no room: cells that sequences shared are now separate
                    self._lengths[other], self._trees[other] = 0, None
                    break

    def _states_of(self, slot: int) -> list[tuple[int, Any]]:
        """The slot's sequences with their keys and values in llama.cpp's format; tree sequences without the prefix that
        they share."""
        tree, others, found = self._trees[slot], self._sequences.sequences(slot), []
        for sequence in (slot, *others):
            if tree is not None and sequence != slot:
                lib.llama_memory_seq_rm(self._memory, sequence, -1, tree.start + tree.trunk)
            size = lib.llama_state_seq_get_size(self._context, sequence)
            state = (ctypes.c_uint8 * size)()
            lib.llama_state_seq_get_data(self._context, state, size, sequence)
            found.append((sequence, state))
        return found

    def _try_widths(self) -> int:
        """The widest pass whose width does not change its results."""
        size = self.vocabulary.size
        tokens = [(size // 2 + 7 * at) % size for at in range(ONE_PATH)]  # words: padding may compute zeros

        def run(start: int, end: int) -> Logits:
            return self.extend([Entry(0, start, tokens[start:end], 0)])[0].copy()

        widest = min(self.max_batch_tokens, self.context_length)
        most = equal_up_to(run, widest)
        self.release(0)
        return most

    def _probe_rollback(self) -> None:
        """Raises ModelLoadError for models that cannot remove rejected tokens."""
        token = self.vocabulary.begin or 0
        self.extend([Entry(0, 0, [token, token], 2)])
        if not lib.llama_memory_seq_rm(self._memory, 0, 1, -1):
            raise ModelLoadError(
                f"{self.model_name}: this model cannot roll back rejected tokens, which speculative decoding needs; "
                "choose another one"
            )
        self.release(0)
