"""The KV cache of several slots, each at a position of its own, in tensors whose shape never changes.

Transformers' static cache keeps one length for all sequences. This cache keeps no length: each pass names the slots and
positions of its tokens, and a mask says which positions each token attends to. So a rollback costs nothing, and a
compiled model runs the same graph at every position.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specpair.engines.errors import ModelLoadError


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The shape of what one layer keeps of a token: (heads, width) of its key and of its value."""

    key: tuple[int, int]
    value: tuple[int, int]

    @property
    def numbers(self) -> int:
        """How many numbers the layer stores per token."""
        return self.key[0] * self.key[1] + self.value[0] * self.value[1]


class _Cache:
    """The part of transformers' cache interface that a model needs: it calls `update`."""

    is_compileable = True

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0  # unused, since positions and masks are given

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        raise NotImplementedError


class Probe(_Cache):
    """A cache that stores nothing, but records the shape of each layer's keys and values."""

    def __init__(self) -> None:
        self.layers: dict[int, LayerShape] = {}

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.layers[layer_idx] = LayerShape((keys.shape[1], keys.shape[3]), (values.shape[1], values.shape[3]))
        return keys, values


def layer_shapes(run: Callable[[Probe], object], name: str) -> list[LayerShape]:
    """Find the shape of each layer's keys and values. `run` runs the model over one token with the cache it is given.

    Raises ModelLoadError for a model that keeps anything but keys and values, since it could not roll back.
    """
    probe = Probe()
    try:
        run(probe)
    except (AttributeError, TypeError, ValueError, IndexError, KeyError) as error:
        raise ModelLoadError(
            f"{name} keeps more than keys and values ({error}), so it cannot roll back rejected tokens, which "
            "speculative decoding needs: choose a model with attention in every layer"
        ) from error
    if not probe.layers or sorted(probe.layers) != list(range(len(probe.layers))):
        raise ModelLoadError(f"{name} has layers without keys and values: choose one with attention in every layer")
    return [probe.layers[at] for at in range(len(probe.layers))]


class SlotCache(torch.nn.Module):  # type: ignore[misc]
    """The KV cache of all slots: per layer two tensors of shape (slots, heads, positions, width).

    The tensors are buffers of a module, which compilers treat as writable memory at a fixed address.
    """

    def __init__(self, layers: list[LayerShape], slots: int, positions: int, dtype: torch.dtype, device: Any) -> None:
        super().__init__()
        for at, layer in enumerate(layers):
            for name, (heads, width) in (("key", layer.key), ("value", layer.value)):
                zeros = torch.zeros(slots, heads, positions, width, dtype=dtype, device=device)
                self.register_buffer(f"{name}{at}", zeros, persistent=False)

    def copy(self, source: int, destination: int, length: int) -> None:
        """Copy the first `length` positions of one slot to another."""
        slots = torch.tensor([source, destination], device=self.key0.device)  # a tensor: a compiler sees no constants
        for buffer in self.buffers():
            positions = buffer[:, :, :length]
            positions.index_copy_(0, slots[1:], positions.index_select(0, slots[:1]))

    def clear(self, slot: int, length: int) -> None:
        """Fill the first `length` positions of a slot with zeros."""
        index = torch.tensor([slot], device=self.key0.device)
        for buffer in self.buffers():
            buffer[:, :, :length].index_fill_(0, index, 0.0)


class View(_Cache):
    """The cache in one launch: the tokens of `slots` are at `positions` (slots, tokens) and attend to `span` positions.

    `whole`: the launch covers all slots in order, so that no slots need to be gathered.
    """

    def __init__(self, cache: SlotCache, slots: Tensor, positions: Tensor, span: int, whole: bool) -> None:
        self._cache, self._slots, self._positions, self._span, self._whole = cache, slots, positions, span, whole

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return self._place(f"key{layer_idx}", keys), self._place(f"value{layer_idx}", values)

    def _place(self, name: str, new: Tensor) -> Tensor:
        """Store `new` (slots, heads, tokens, width); return (slots, heads, span, width), `new` included."""
        held = getattr(self._cache, name)
        held[self._slots[:, None], :, self._positions] = new.transpose(1, 2).to(held.dtype)
        span = held[:, :, : self._span]
        return span if self._whole else span[self._slots]
