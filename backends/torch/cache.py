"""Keys and values of several sequences, each at a position of its own, in tensors whose shape never changes.

Transformers' own static cache keeps one length for all of its rows. This one keeps none: each pass says at which
positions of which rows its tokens belong, and a mask says which positions each token may look at. So taking tokens
back costs nothing, and a compiled model sees the same graph wherever it stands.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backends.base import ModelLoadError


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps of a token: (heads, width) of its key and of its value."""

    key: tuple[int, int]
    value: tuple[int, int]

    @property
    def numbers(self) -> int:
        """How many."""
        return self.key[0] * self.key[1] + self.value[0] * self.value[1]


class _Cache:
    """What transformers asks of a cache, and how much of it we answer: a model reads only `update`."""

    is_compileable = True

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0  # positions and masks are given, so nobody needs to know

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        raise NotImplementedError


class Probe(_Cache):
    """Sees what each layer keeps."""

    def __init__(self) -> None:
        self.layers: dict[int, LayerShape] = {}

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.layers[layer_idx] = LayerShape((keys.shape[1], keys.shape[3]), (values.shape[1], values.shape[3]))
        return keys, values


def layer_shapes(run: Callable[[Probe], object], name: str) -> list[LayerShape]:
    """What each layer keeps; `run` lets the model read a token with the cache it is given.

    Raises ModelLoadError for a model that keeps anything but keys and values: it could not take tokens back.
    """
    probe = Probe()
    try:
        run(probe)
    except (AttributeError, TypeError, ValueError, IndexError, KeyError) as error:
        raise ModelLoadError(
            f"{name} keeps more than keys and values ({error}), so it cannot take back rejected tokens, which "
            "speculative decoding needs: choose a model with attention in every layer"
        ) from error
    if not probe.layers or sorted(probe.layers) != list(range(len(probe.layers))):
        raise ModelLoadError(f"{name} has layers without keys and values: choose one with attention in every layer")
    return [probe.layers[at] for at in range(len(probe.layers))]


class RowCache(torch.nn.Module):  # type: ignore[misc]
    """The cache of all rows. Per layer two tensors of shape (rows, heads, positions, width).

    They are buffers of a module, which compilers take for memory at a fixed address that may be written to.
    """

    def __init__(self, layers: list[LayerShape], rows: int, positions: int, dtype: torch.dtype, device: Any) -> None:
        super().__init__()
        for at, layer in enumerate(layers):
            for name, (heads, width) in (("key", layer.key), ("value", layer.value)):
                zeros = torch.zeros(rows, heads, positions, width, dtype=dtype, device=device)
                self.register_buffer(f"{name}{at}", zeros, persistent=False)

    def copy(self, source: int, destination: int, length: int) -> None:
        """Copy the first `length` positions from row to row. Which rows is no constant that a compiler would see."""
        rows = torch.tensor([source, destination], device=self.key0.device)
        for buffer in self.buffers():
            seen = buffer[:, :, :length]
            seen.index_copy_(0, rows[1:], seen.index_select(0, rows[:1]))

    def clear(self, row: int, length: int) -> None:
        """Make the first `length` positions of a row zeros."""
        which = torch.tensor([row], device=self.key0.device)
        for buffer in self.buffers():
            buffer[:, :, :length].index_fill_(0, which, 0.0)


class View(_Cache):
    """The cache during one pass: tokens of `rows` are at `positions` (rows, tokens), and look back over `span` places.

    `whole`: the pass is over all rows in their order, so that nothing needs to be gathered.
    """

    def __init__(self, cache: RowCache, rows: Tensor, positions: Tensor, span: int, whole: bool) -> None:
        self._cache, self._rows, self._positions, self._span, self._whole = cache, rows, positions, span, whole

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return self._place(f"key{layer_idx}", keys), self._place(f"value{layer_idx}", values)

    def _place(self, name: str, new: Tensor) -> Tensor:
        """`new`: (rows, heads, tokens, width). Returns (rows, heads, span, width), the new ones among them."""
        held = getattr(self._cache, name)
        held[self._rows[:, None], :, self._positions] = new.transpose(1, 2).to(held.dtype)
        seen = held[:, :, : self._span]
        return seen if self._whole else seen[self._rows]
