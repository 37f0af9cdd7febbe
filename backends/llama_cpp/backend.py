"""GGUF models on llama.cpp (CPU, Metal, CUDA) through llama-cpp-python's low-level API.

All slots share one unified KV cache, so that a batch over any slots and widths is one forward pass, and copying a
prefix moves no data. Misuse of the library aborts the process, so everything is checked before a call.

The last bits of the logits depend on the width of a pass and on the cells where the cache holds a slot's tokens:
attention sums in the order of cells, and with several slots in one cache that order is accidental. `deterministic`
gives each slot a cache and a pass of its own, of widths that take one code path; weights should not be repacked then.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backends.base import (
    MOST_SLOTS,
    Backend,
    EngineFailure,
    Entry,
    LoadOptions,
    Logits,
    ModelLoadError,
    OutOfRoom,
    Progress,
)
from backends.llama_cpp.library import lib, take_interrupts, take_warnings
from backends.llama_cpp.metadata import check_generates, stated_integer
from backends.llama_cpp.vocabulary import LlamaVocabulary, chat_template, check_gguf
from backends.machine import available_bytes, check_room, slots_that_fit, threads_for

KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "q4_0": 2}  # ggml_type numbers
_KV_BYTES = {"f32": 4.0, "f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
_ONE_PATH = 63  # passes of 2 (mostly even 1) to 63 tokens take the same code path on CPUs; wider ones take another
_ONE_PATH_K = 7  # the same for weights in K-quants that are not repacked


class LlamaBackend(Backend):
    """A GGUF model with one llama.cpp context."""

    name = "llama_cpp"

    def __init__(self, options: LoadOptions, progress: Progress | None = None, *, extra_buffers: bool = True) -> None:
        """Load the model in `options.model`. Raises ModelLoadError.

        `progress` is called with the share loaded, 0 to 1. `extra_buffers`: whether weights may be repacked for the
        processor (AMX, wider vectors), which is faster.
        """
        path = check_gguf(options.model)
        if options.kv_type not in KV_TYPES:
            raise ModelLoadError(
                f"kv_type {options.kv_type!r} is unknown: choose one of {', '.join(KV_TYPES)}", "kv_type"
            )
        self._model: Any = None
        self._context: Any = None
        lib.llama_backend_init()
        try:
            self._model = _load_model(path, options, progress, extra_buffers)
            self.model_name = path.stem
            check_generates(self._model, self.model_name)
            self.vocabulary = LlamaVocabulary(self._model)
            self.chat_template = chat_template(self._model)
            trained = lib.llama_model_n_ctx_train(self._model)
            self.context_length = options.context_length or min(trained, 4096)
            token_bytes = _kv_bytes_per_token(self._model, options.kv_type)
            self.slots = options.slots or slots_that_fit(token_bytes * self.context_length, available_bytes())
            if not 1 <= self.slots <= MOST_SLOTS:
                raise ModelLoadError(f"rows is {self.slots}, llama.cpp takes 1 to {MOST_SLOTS}", "rows")
            contexts, further = self.slots, 0
            if options.shared_cells is not None and not options.deterministic:
                contexts, further = options.contexts, options.shared_cells
            self.kv_bytes = token_bytes * (contexts * self.context_length + further)
            if not lib.llama_supports_gpu_offload():
                check_room(self, available_bytes())
            self.max_batch_tokens = max(options.batch_tokens, self.slots, 2)
            self._deterministic = options.deterministic
            threads = options.threads or threads_for(lib.llama_model_size(self._model))
            self._widest = _ONE_PATH  # tokens of a pass, where `deterministic`
            if lib.llama_supports_gpu_offload() and options.gpu_layers != 0:
                self.runs_on = "a GPU, as many layers as gpu_layers says"
            else:
                self.threads = threads
            if not (self._deterministic or lib.llama_supports_gpu_offload()):
                self.even_width = _ONE_PATH
            # For each context one cell more, for the padding token of `_pass`.
            self._context = self._open_context(options, threads, contexts * (self.context_length + 1) + further)
            self._memory = lib.llama_get_memory(self._context)
            self._prepare_batch()
            super().__init__()
            self._probe_rollback()
            if self._deterministic:
                self._widest = self._probe_width()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._context is not None:
            lib.llama_free(self._context)
            self._context = None
        if self._model is not None:
            lib.llama_model_free(self._model)
            self._model = None

    def _open_context(self, options: LoadOptions, threads: int, cells: int) -> Any:
        params = lib.llama_context_default_params()
        params.n_seq_max = self.slots
        params.n_ctx = cells
        params.n_batch = self.max_batch_tokens + 1
        params.n_ubatch = min(params.n_batch, _ONE_PATH if self._deterministic else 512)
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = not self._deterministic
        params.swa_full = True  # else sliding windows forget what a rollback needs
        params.flash_attn_type = (
            lib.LLAMA_FLASH_ATTN_TYPE_ENABLED if options.flash_attention else lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        params.type_k = params.type_v = KV_TYPES[options.kv_type]
        params.no_perf = True
        context = lib.llama_init_from_model(self._model, params)
        if not context:
            raise ModelLoadError(
                f"no context for {self.slots} slots of {self.context_length} tokens ({self.kv_bytes / 2**30:.2f} GiB "
                f"of KV cache): lower rows or context ({take_warnings()})"
            )
        return context

    def _prepare_batch(self) -> None:
        """Make the llama_batch of all passes over NumPy arrays, which fill 20 times as fast as C structs."""
        room = self.max_batch_tokens + 1
        self._tokens = np.zeros(room, dtype=np.int32)
        self._positions = np.zeros(room, dtype=np.int32)
        self._slot_counts = np.ones(room, dtype=np.int32)
        self._slot_ids = np.zeros(room, dtype=np.int32)
        self._wanted = np.zeros(room, dtype=np.int8)
        step = self._slot_ids.itemsize
        self._slot_pointers = (self._slot_ids.ctypes.data + step * np.arange(room)).astype(np.uint64)
        int32s = ctypes.POINTER(ctypes.c_int32)
        self._batch = lib.llama_batch(
            n_tokens=0,
            token=self._tokens.ctypes.data_as(int32s),
            embd=None,
            pos=self._positions.ctypes.data_as(int32s),
            n_seq_id=self._slot_counts.ctypes.data_as(int32s),
            seq_id=self._slot_pointers.ctypes.data_as(ctypes.POINTER(int32s)),
            logits=self._wanted.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self._deterministic:
            return [self._in_pieces(entry) for entry in batch]
        return self._pass(batch)

    def _in_pieces(self, entry: Entry) -> Logits:
        """Run passes of at most `_widest` tokens over one entry. Returns its logits, which later passes leave alone."""
        slot, start, tokens, logits_from = entry
        step = self._widest
        pieces = [
            Entry(slot, start + at, tokens[at : at + step], min(max(logits_from - at, 0), len(tokens[at : at + step])))
            for at in range(0, len(tokens), step)
        ]
        return np.concatenate([self._pass([piece])[0].copy() for piece in pieces])

    def _pass(self, batch: Sequence[Entry]) -> list[Logits]:
        """Run one forward pass. Returns, per entry, logits in the library's memory, which the next pass overwrites."""
        at = 0
        for slot, start, tokens, logits_from in batch:
            if start < self._lengths[slot]:
                lib.llama_memory_seq_rm(self._memory, slot, start, -1)
            end = at + len(tokens)
            self._tokens[at:end] = tokens
            self._positions[at:end] = range(start, start + len(tokens))
            self._slot_ids[at:end] = slot
            self._wanted[at : at + logits_from] = 0
            self._wanted[at + logits_from : end] = 1
            at = end
        padded = self._deterministic and at == 1
        if padded:  # a width of 1 would take another code path; no token attends to the padding token behind it
            slot, beyond = batch[-1].slot, int(self._positions[at - 1]) + 1
            self._tokens[at], self._positions[at], self._slot_ids[at], self._wanted[at] = 0, beyond, slot, 0
            at += 1
        self._batch.n_tokens = at
        code = lib.llama_decode(self._context, self._batch)
        if padded:
            lib.llama_memory_seq_rm(self._memory, slot, beyond, -1)
        if code == 1:
            raise OutOfRoom(f"the KV cache has no room for {at} more tokens")
        if code != 0:
            raise EngineFailure(f"llama_decode returned {code}: {take_warnings()}")
        ends = np.cumsum([len(entry.tokens) - entry.logits_from for entry in batch])
        block: Logits = np.empty((0, self.vocabulary.size), dtype=np.float32)
        if ends[-1]:
            shape = int(ends[-1]), self.vocabulary.size
            first = ctypes.addressof(lib.llama_get_logits(self._context).contents)
            # `np.ctypeslib.as_array` would leave a cycle of objects to the garbage collector after each pass.
            floats = (ctypes.c_float * (shape[0] * shape[1])).from_address(first)
            block = np.frombuffer(memoryview(floats), dtype=np.float32).reshape(shape)
        return np.split(block, ends[:-1])

    def _copy(self, source: int, destination: int, length: int) -> None:
        self._release(destination)  # llama.cpp would merge the copy with what the slot holds
        if self._deterministic:  # llama.cpp copies separate caches only whole
            lib.llama_memory_seq_cp(self._memory, source, destination, -1, -1)
            lib.llama_memory_seq_rm(self._memory, destination, length, -1)
        else:
            lib.llama_memory_seq_cp(self._memory, source, destination, 0, length)

    def _release(self, slot: int) -> None:
        lib.llama_memory_seq_rm(self._memory, slot, -1, -1)

    def _clear(self, slot: int) -> None:
        """Fill all cells with zeros, and restore those of other slots: llama.cpp cannot clear single cells."""
        states = {other: self._state(other) for other, length in enumerate(self._lengths) if length and other != slot}
        lib.llama_memory_clear(self._memory, True)
        for other, state in states.items():
            if not lib.llama_state_seq_set_data(self._context, state, len(state), other):
                self._release(other)  # no room: cells that slots shared are now separate
                self._lengths[other] = 0

    def _state(self, slot: int) -> Any:
        """The keys and values of a slot, in llama.cpp's own format."""
        size = lib.llama_state_seq_get_size(self._context, slot)
        state = (ctypes.c_uint8 * size)()
        lib.llama_state_seq_get_data(self._context, state, size, slot)
        return state

    def _probe_width(self) -> int:
        """How many tokens a pass may have so that its width does not matter, from trials."""
        tokens = [token % self.vocabulary.size for token in range(_ONE_PATH)]
        widths = [
            width for width in (2, 8, 16, 32, _ONE_PATH) if width <= min(self.max_batch_tokens, self.context_length)
        ]
        rows = [self.extend([Entry(0, 0, tokens[:width], 0)])[0][:2].copy() for width in widths]
        self.release(0)
        return _ONE_PATH if all(np.array_equal(rows[0], each) for each in rows) else _ONE_PATH_K

    def _probe_rollback(self) -> None:
        """Raises ModelLoadError for recurrent and hybrid models: rejected draft tokens would stay in their state."""
        token = self.vocabulary.begin or 0
        self.extend([Entry(0, 0, [token, token], 2)])
        if not lib.llama_memory_seq_rm(self._memory, 0, 1, -1):
            recurrent = lib.llama_model_is_recurrent(self._model) or lib.llama_model_is_hybrid(self._model)
            kind = "a recurrent or hybrid model" if recurrent else "this model"
            raise ModelLoadError(
                f"{self.model_name}: {kind} cannot roll back rejected tokens, which speculative decoding needs; "
                "choose a model with attention in every layer"
            )
        self.release(0)


def _load_model(path: Path, options: LoadOptions, progress: Progress | None, extra_buffers: bool) -> Any:
    params = lib.llama_model_default_params()
    params.use_extra_bufts = extra_buffers
    params.n_gpu_layers = options.gpu_layers
    params.load_mode = lib.LLAMA_LOAD_MODE_MMAP if options.mmap else lib.LLAMA_LOAD_MODE_NONE

    raised: list[BaseException] = []  # exceptions in the callback, such as KeyboardInterrupt: ctypes would drop them

    def report(fraction: float, _user_data: object) -> bool:
        try:
            if progress is not None:
                progress(fraction)
        except BaseException as error:
            raised.append(error)
        return not raised

    callback = lib.llama_progress_callback(report)
    params.progress_callback = callback
    take_warnings()  # drop earlier messages
    model = lib.llama_model_load_from_file(str(path).encode(), params)
    raised += take_interrupts()
    if raised:
        if model:
            lib.llama_model_free(model)
        raise raised[0]
    if not model:
        raise ModelLoadError(f"llama.cpp could not load {path}: {take_warnings()}")
    return model


def _kv_bytes_per_token(model: Any, kv_type: str) -> int:
    """Bytes of the KV cache for one token of one slot, over all layers."""
    usual = lib.llama_model_n_embd(model) // max(1, lib.llama_model_n_head(model))  # head width, unless one is stated
    widths = sum(stated_integer(model, f"attention.{part}_length") or usual for part in ("key", "value"))
    values = lib.llama_model_n_layer(model) * lib.llama_model_n_head_kv(model) * widths
    return int(values * _KV_BYTES[kv_type])
