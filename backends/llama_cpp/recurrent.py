"""Takes back tokens of recurrent and hybrid models, of whose state llama.cpp holds only the last one.

Before tokens that may be rejected, a copy of the state is taken: a *point*. A slot rolls back to a point, and the
tokens from there to where it goes on are read again, at the head of its next pass. So a pass after a rejection is
wider, and whoever measures passes sees what rejected tokens cost. Reading them in a pass of their own, behind which a
point is taken, costs a pass, but they are then never read again: it is done as soon as what is read again at the heads
of passes has cost as much as a pass does beside its tokens.

Some architectures keep the states of the last few tokens themselves (`n_rs_seq`): they take back tokens of the last
pass without a point and without reading again. Only in a context of one slot: llama.cpp moves the states of slots about
to make them neighbours, and leaves those of earlier tokens where they were.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import Any, NamedTuple

from backends.llama_cpp.library import lib, take_warnings
from specpair.engines.backend import Entry
from specpair.engines.errors import EngineFailure, ModelLoadError

JOINED = (
    8  # tokens read again at the head of a pass; more are read in a pass of their own, behind which a point is taken
)
POINTS = 3  # of a slot, at most: the newest, and two that are far from each other, for texts that begin alike
_KEPT_STATES = 8  # tokens that an architecture with `n_rs_seq` takes back by itself
_SHARE = (
    16  # the states that it keeps for them take this part of the weights at most: a pass of several tokens writes them
)
_TIMED = 3  # how often each width is timed
_APART = 64  # tokens between points where the architecture takes back what is rejected
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


@dataclass(slots=True)
class _Point:
    """A copy of the state after the first `position` tokens of a text."""

    position: int
    state: Any  # bytes in the library's format
    shared: bool = False  # whether several slots may have it


@dataclass(slots=True)
class _Text:
    """The tokens of a slot, of which the library's state has read the first `read`."""

    tokens: list[int] = field(default_factory=list)
    read: int = 0
    points: list[_Point] = field(default_factory=list)  # in order of position
    takes_back: int = 0  # of the tokens last read, how many the library takes back by itself
    joined: int = 0  # tokens read again at the heads of passes since the last point

    def base(self, length: int) -> int:
        """The longest of the states at hand for the first `length` tokens, in tokens."""
        if self.read <= length or self.read - length <= self.takes_back:
            return min(self.read, length)
        return max((point.position for point in self.points if point.position <= length), default=0)


class RecurrentStates:
    """The texts and points of all slots of one context."""

    def __init__(self, context: Any, slots: int, read: Callable[[Entry], object], widest: int) -> None:
        """`read`: runs a pass over one entry, of at most `widest` tokens."""
        self._context, self._memory = context, lib.llama_get_memory(context)
        self._read, self._widest = read, widest
        self._kept_states = int(lib.llama_n_rs_seq(context))
        self._texts = [_Text() for _ in range(slots)]
        self._tokens_of_a_pass = self._measured()
        self._spare: list[Any] = []  # memory of states that are no longer needed: new memory takes seven times as long

    def prepared(self, entry: Entry) -> Entry:
        """Roll a slot back to where `entry` starts. Returns the entry, with the tokens before it that are read again.

        The slot counts as extended by the entry from now on: forget it if the pass fails.
        """
        slot, start, tokens, logits_from = entry
        text = self._texts[slot]
        self._roll_back(slot, start)
        del text.tokens[start:]
        apart = JOINED if len(tokens) == 1 else 1  # several tokens: some may be rejected
        if 1 < len(tokens) <= self._kept_states + 1:
            apart = _APART
        text.joined += start - text.read
        if start - text.read > JOINED or text.joined > self._tokens_of_a_pass:
            apart = 1
            for at in range(text.read, start, self._widest):
                again = text.tokens[at : at + self._widest]
                self._read(Entry(slot, at, again, len(again)))
            text.read, text.takes_back = start, 0
        newest = text.points[-1].position if text.points else start - apart
        if 0 < start == text.read >= newest + apart:
            self._take_point(slot)
        again, first = text.tokens[text.read :], text.read
        text.tokens += tokens
        text.read = len(text.tokens)
        text.takes_back = min(self._kept_states, text.read - first - 1)
        return Entry(slot, first, [*again, *tokens], logits_from + len(again))

    def reread(self, slot: int, length: int) -> int:
        """How many of the first `length` tokens of a slot are read again when a pass starts behind them."""
        return length - self._texts[slot].base(length)

    def copy(self, source: int, destination: int, length: int) -> None:
        """Make slot `destination`, which is empty, hold the first `length` tokens of `source`."""
        text, base = self._texts[source], self._texts[source].base(length)
        points = [point for point in text.points if point.position <= length]
        for point in points:
            point.shared = True
        self._texts[destination] = _Text(text.tokens[:length], base, points)
        if base:
            lib.llama_memory_seq_cp(self._memory, source, destination, 0, base)
            if base < text.read:
                self._restore(destination, base)

    def forget(self, slot: int) -> None:
        """Note that a slot has been emptied."""
        self._drop(self._texts[slot].points)
        self._texts[slot] = _Text()

    def _roll_back(self, slot: int, length: int) -> None:
        text = self._texts[slot]
        if text.read <= length:
            return
        base = text.base(length)
        if text.read - base <= text.takes_back:
            lib.llama_memory_seq_rm(self._memory, slot, base, -1)
        elif base:
            self._restore(slot, base)
        else:
            lib.llama_memory_seq_rm(self._memory, slot, -1, -1)
        text.read, text.takes_back = base, 0
        self._drop([point for point in text.points if point.position > length])
        text.points = [point for point in text.points if point.position <= length]

    def _restore(self, slot: int, position: int) -> None:
        """Put the state of a point back, and forget the keys and values behind it."""
        state = next(point.state for point in self._texts[slot].points if point.position == position)
        if not lib.llama_state_seq_set_data_ext(self._context, state, len(state), slot, _PARTIAL):
            raise EngineFailure(f"a state of {position} tokens could not be put back: {take_warnings()}")
        lib.llama_memory_seq_rm(self._memory, slot, position, -1)

    def _take_point(self, slot: int) -> None:
        """Copy the state of a slot, which the next pass is about to change."""
        text = self._texts[slot]
        size = lib.llama_state_seq_get_size_ext(self._context, slot, _PARTIAL)
        state = self._spare.pop() if self._spare else None
        if state is None or len(state) != size:
            state = (ctypes.c_uint8 * size)()
        if not lib.llama_state_seq_get_data_ext(self._context, state, size, slot, _PARTIAL):
            raise EngineFailure(f"the state of {text.read} tokens could not be copied: {take_warnings()}")
        text.points.append(_Point(text.read, state))
        text.joined = 0
        if len(text.points) > POINTS:  # one of the older ones goes, where the others are nearest to each other
            edges = [0, *(point.position for point in text.points)]
            self._drop([text.points.pop(min(range(POINTS), key=lambda at: edges[at + 2] - edges[at]))])

    def _measured(self) -> float:
        """How many tokens take as long to read as a pass takes beside its tokens, by passes in the first slot."""
        wide = min(JOINED + 1, self._widest)
        least = {1: inf, wide: inf}
        for width in [*least] * _TIMED:
            began = perf_counter()
            self._read(Entry(0, 0, [0] * width, width))
            least[width] = min(least[width], perf_counter() - began)
            lib.llama_memory_seq_rm(self._memory, 0, -1, -1)
        token = (least[wide] - least[1]) / (wide - 1)
        return least[1] / token - 1 if token > 0 else inf

    def _drop(self, points: Sequence[_Point]) -> None:
        """Keep the memory of points that no slot has any more."""
        self._spare += [point.state for point in points if not point.shared]
