"""The KV cache of several slots at different positions, in tensors of fixed shape.

Transformers' static cache keeps one length for all sequences. This cache keeps no length: each pass names the slots and
positions of its tokens, and a mask says which positions each token attends to. So a rollback costs nothing, and a
compiled model runs the same graph at every position. A token of a tree lies behind those that it was fed with, wherever
its position is; once a path is kept, its keys and values move to the places of their positions.

Layers of recurrent and hybrid models keep states instead, each behind the last token of its slot: the last inputs of a
convolution ("conv") and sums over all tokens ("recurrent"). A slot without tokens has states of zeros, from which
transformers computes the same as without any. `backends.recurrent` takes back tokens of them. Where there are
convolutions only, some more inputs are kept, so that the last tokens are taken back without reading any again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backends.torch.compiling import NEURON
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.errors import EngineFailure, ModelLoadError
from specpair.engines.load_options import LoadOptions

_PASSES = (1, 2, 2, 3)  # tokens of the passes that read a text in parts
_APART = {torch.float32: 0.02}  # how much the logits of half the tokens may differ, as a share of the greatest
_APART_16_BITS = 0.2
HIDDEN = "hidden"  # the name of the target's hidden states, which are cached for a head, as one key a token
_TAKES_BACK = 8  # tokens of the last pass, for models whose states are those of convolutions


@dataclass(slots=True)
class Shapes:
    """The shapes that a model caches: per token (heads, width), by name as `key0`; per slot, by the state's name."""

    tokens: dict[str, tuple[int, int]] = field(default_factory=dict)
    states: dict[str, tuple[tuple[int, ...], torch.dtype]] = field(default_factory=dict)
    takes_back: int = 0  # tokens of the last pass that the states take back by themselves

    @property
    def state_bytes(self) -> int:
        """Bytes of the states of a slot."""
        return sum(prod(shape) * int(dtype.itemsize) for shape, dtype in self.states.values())

    def token_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of the keys and values of a token."""
        return sum(map(prod, self.tokens.values())) * int(dtype.itemsize)


class _Cache:
    """The part of transformers' cache interface that a model needs. `_state` is None where no token was read."""

    is_compileable = True

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0  # unused, since positions and masks are given

    def is_recording_past(self, layer_idx: int) -> bool:
        return False

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self._state(f"conv{layer_idx}_{state_idx}")

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self._state(f"recurrent{layer_idx}_{state_idx}")

    def _state(self, name: str) -> Tensor | None:
        raise NotImplementedError


class ShapeProbe(_Cache):
    """A cache that records the shapes that a model caches, and stores nothing."""

    def __init__(self) -> None:
        self.shapes = Shapes()

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        for name, part in (("key", keys), ("value", values)):
            self.shapes.tokens[f"{name}{layer_idx}"] = part.shape[1], part.shape[3]
        return keys, values

    def update_conv_state(self, inputs: Tensor, layer_idx: int, state_idx: int = 0, *, conv_kernel_size: int) -> Tensor:
        shape = (*inputs.shape[1:-1], conv_kernel_size)
        self.shapes.states[f"conv{layer_idx}_{state_idx}"] = shape, inputs.dtype
        return torch.nn.functional.pad(inputs, (conv_kernel_size - 1, 0))

    def update_recurrent_state(self, state: Tensor, layer_idx: int, state_idx: int = 0) -> Tensor:
        self.shapes.states[f"recurrent{layer_idx}_{state_idx}"] = tuple(state.shape[1:]), state.dtype
        return state

    def _state(self, name: str) -> None:
        return None


def kept_shapes(run: Callable[[ShapeProbe], object], name: str) -> Shapes:
    """Find the shapes that a model caches. `run` runs it over one token with the given cache. `name`: for errors.

    Raises ModelLoadError for a model that keeps anything else: it could not roll back.
    """
    probe = ShapeProbe()
    try:
        run(probe)
    except (AttributeError, TypeError, ValueError, IndexError, KeyError, RuntimeError) as error:
        raise ModelLoadError(
            f"{name} does not run with the cache of the torch backend, which takes back rejected tokens ({error}): "
            "choose another model"
        ) from error
    found = probe.shapes
    if found.states and all(state.startswith("conv") for state in found.states):
        found.takes_back = _TAKES_BACK
        for state, (shape, dtype) in found.states.items():
            found.states[state] = (*shape[:-1], shape[-1] + _TAKES_BACK), dtype
    if not (found.tokens or found.states):
        raise ModelLoadError(f"{name} has no cache of earlier tokens: choose another model")
    if not found.states and not {f"key{at}" for at in range(len(found.tokens) // 2)} <= found.tokens.keys():
        raise ModelLoadError(f"{name} has layers without keys and values: choose one with attention in every layer")
    return found


def check_settings(options: LoadOptions, compiler: str | None, name: str) -> None:
    """Raises ModelLoadError for settings that a model with states does not support. `name`: of the model and its
    architecture."""
    parts = options.tensor_parallel or 1
    if parts > 1:
        raise ModelLoadError(
            f"tensor_parallel {parts}: {name} keeps states, which cannot be spread over devices: leave it out",
            "tensor_parallel",
        )
    if compiler is not None:
        setting, advice = ("device", "use another one") if compiler == NEURON else ("compile", "leave it out")
        raise ModelLoadError(
            f"{setting}: {name} keeps states, which would read the padding of compiled launches: {advice}", setting
        )


def check_continues(backend: Backend, dtype: torch.dtype, name: str) -> None:
    """Raises ModelLoadError if passes over parts of a text give other logits than one pass over all of it: a model may
    begin anew in each pass of several tokens.

    `backend`: empty, and empty again afterwards.
    `name`: of the model and its architecture.
    """

    def logits(widths: Sequence[int]) -> Logits:
        parts, at = [], 0
        for width in widths:
            if some := tokens[at : at + width]:
                parts.append(backend.extend([Entry(0, at, some, 0)])[0].copy())
            at += width
        backend.release(0)
        return np.concatenate(parts)

    tokens = [backend.vocabulary.size * at // sum(_PASSES) for at in range(sum(_PASSES))]
    tokens = tokens[: min(backend.context_length, backend.max_batch_tokens)]
    try:
        whole, in_parts = logits([len(tokens)]), logits(_PASSES)
    except EngineFailure as error:
        raise ModelLoadError(f"{name} fails at its first tokens: {error}") from error
    # The median: rounding may send a token to another expert.
    apart = float(np.median(np.abs(whole - in_parts)[1:].max(axis=-1)) / np.abs(whole).max())
    if not apart <= _APART.get(dtype, _APART_16_BITS):
        raise ModelLoadError(
            f"{name} does not continue from its states as transformers runs it (logits differ by {apart:.2g} of the "
            "greatest), so it cannot roll back rejected tokens, which speculative decoding needs: choose another model"
        )


class SlotCache(torch.nn.Module):  # type: ignore[misc]
    """The KV cache of all slots: per layer two tensors of shape (slots, heads, positions, width), and the states, each
    of shape (slots, …).

    The tensors are buffers of a module, which compilers treat as writable memory at a fixed address.
    """

    def __init__(self, shapes: Shapes, slots: int, positions: int, dtype: torch.dtype, device: Any) -> None:
        super().__init__()
        self._device, self._states, self._kept = device, list(shapes.states), list(shapes.tokens)
        self.keeps_hidden = HIDDEN in shapes.tokens
        held = {name: ((heads, positions, width), dtype) for name, (heads, width) in shapes.tokens.items()}
        for name, (shape, kind) in {**held, **shapes.states}.items():
            self.register_buffer(name, torch.zeros(slots, *shape, dtype=kind, device=device), persistent=False)

    def copy(self, source: int, destination: int, length: int) -> None:
        """Copy the first `length` positions and the states of one slot to another."""
        slots = torch.tensor([source, destination], device=self._device)  # a tensor: a compiler sees no constants
        for part in self._parts(length):
            part.index_copy_(0, slots[1:], part.index_select(0, slots[:1]))

    def clear(self, slot: int, length: int) -> None:
        """Fill the first `length` positions and the states of a slot with zeros."""
        index = torch.tensor([slot], device=self._device)
        for part in self._parts(length):
            part.index_fill_(0, index, 0.0)

    def move(self, slots: Sequence[int], places: Sequence[int], targets: Sequence[int]) -> None:
        """Copy the keys and values of tree tokens to other cells of their slots."""
        at, source, target = torch.tensor([slots, places, targets], device=self._device)
        for part in (getattr(self, name) for name in self._kept):
            part[at, :, target] = part[at, :, source]

    def save(self, slot: int, spare: list[Tensor] | None) -> list[Tensor]:
        """A copy of a slot's states, in the memory of the earlier copy `spare`, if any."""
        states = [getattr(self, name)[slot] for name in self._states]
        if spare is None:
            return [state.clone() for state in states]
        return [old.copy_(state) for old, state in zip(spare, states, strict=True)]

    def restore(self, slot: int, states: list[Tensor]) -> None:
        """Restore a copy of states."""
        for name, state in zip(self._states, states, strict=True):
            getattr(self, name)[slot] = state

    def cut(self, slot: int, length: int, back: int) -> None:
        """Remove the last `back` inputs from each state; the fill at its front does not matter. A mask hides keys and
        values."""
        for name in self._states if back else ():
            state = getattr(self, name)[slot]
            state.copy_(state.roll(back, dims=-1))

    def empty(self, slot: int) -> None:
        """Fill the states of a slot with zeros."""
        for name in self._states:
            getattr(self, name)[slot] = 0

    def _parts(self, length: int) -> list[Tensor]:
        return [getattr(self, name)[:, :, :length] for name in self._kept] + [getattr(self, at) for at in self._states]


class LaunchCache(_Cache):
    """The cache in one launch: the tokens of `slots` are at `places` (slots, tokens) and attend to `span` places.

    `whole`: the launch covers all slots in order, so that no slots need to be gathered.
    `names`: what the names of keys and values begin with.
    """

    def __init__(
        self, cache: SlotCache, slots: Tensor, places: Tensor, span: int, whole: bool, names: str = ""
    ) -> None:
        self._cache, self._slots, self._places, self._span, self._whole = cache, slots, places, span, whole
        self._names = names
        self._read: dict[str, Tensor] = {}  # states of the slots, by name; models write to them

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        names, layer = self._names, layer_idx
        return self._stored(f"{names}key{layer}", keys), self._stored(f"{names}value{layer}", values)

    def keep_hidden(self, states: Tensor) -> None:
        """Store the target's hidden states (slots, tokens, width)."""
        self._store(HIDDEN, states[:, None])

    def _store(self, name: str, new: Tensor) -> Tensor:
        """Store `new` (slots, heads, tokens, width). Returns what all slots hold."""
        held: Tensor = getattr(self._cache, name)
        held[self._slots[:, None], :, self._places] = new.transpose(1, 2).to(held.dtype)
        return held

    def _stored(self, name: str, new: Tensor) -> Tensor:
        """Store `new` (slots, heads, tokens, width); return (slots, heads, span, width), `new` included."""
        span = self._store(name, new)[:, :, : self._span]
        return span if self._whole else span[self._slots]

    def update_conv_state(self, inputs: Tensor, layer_idx: int, state_idx: int = 0, *, conv_kernel_size: int) -> Tensor:
        """Store the last of `inputs` (slots, channels, tokens); return all after the earlier ones."""
        state = self._state(f"conv{layer_idx}_{state_idx}")
        whole = torch.cat([state, inputs], dim=-1)
        state.copy_(whole[..., -state.shape[-1] :])
        return whole

    def update_recurrent_state(self, new: Tensor, layer_idx: int, state_idx: int = 0) -> Tensor:
        return self._state(f"recurrent{layer_idx}_{state_idx}").copy_(new)

    def store(self) -> None:
        """Write the states back. To be called once the model has run."""
        if not self._whole:
            for name, state in self._read.items():
                getattr(self._cache, name)[self._slots] = state

    def _state(self, name: str) -> Tensor:
        if name not in self._read:
            held = getattr(self._cache, name)
            self._read[name] = held if self._whole else held[self._slots]
        return self._read[name]
