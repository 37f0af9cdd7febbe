"""Records the operations that PyTorch runs, as a device that compiles each for each new shape would meet them."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """A context in which `found` collects which operations run outside of compiled graphs, on which shapes, strides and
    number types. Views run no operation and are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            leaves = tree_leaves((args, kwargs or {}))
            self.found.add((func, *(_layout(each) if isinstance(each, torch.Tensor) else each for each in leaves)))
        return func(*args, **(kwargs or {}))


def _layout(tensor: Any) -> Any:
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype
