"""The states of recurrent and hybrid models on llama.cpp, of which it holds the one behind a slot's last token.

Some architectures keep the states of the last few tokens themselves (`n_rs_seq`): they take back tokens of the last
pass without a point and without reading again. Only in a context of one slot: llama.cpp moves the states of slots about
to make them neighbours, and leaves those of earlier tokens where they were.
"""

import ctypes
from typing import Any, NamedTuple

from backends.llama_cpp.library import lib, take_warnings
from backends.recurrent import POINTS
from specpair.engines.errors import EngineFailure, ModelLoadError

_KEPT_STATES = 8  # tokens that an architecture with `n_rs_seq` takes back by itself
_SHARE = (
    16  # the states that it keeps for them take this part of the weights at most: a pass of several tokens writes them
)
_PARTIAL = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY


class StateSizes(NamedTuple):
    """What one slot of a recurrent or hybrid model takes in memory."""

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
        raise ModelLoadError(f"no context of 64 tokens, to measure what a slot takes ({take_warnings()})")
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
