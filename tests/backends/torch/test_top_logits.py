"""Heads found on the device: what they say, and that nothing asked of them is new to a device that compiles."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from backends.base import HeadOf

torch = pytest.importorskip("torch", reason="needs the extra in requirements-torch.txt")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402 - it needs the extra
from torch.utils._pytree import tree_leaves  # noqa: E402

from backends.torch.cache import LayerShape, RowCache  # noqa: E402
from backends.torch.top_logits import heads_of, warm  # noqa: E402

pytestmark = pytest.mark.engine("torch")

ROWS, KEPT, VOCABULARY = 4, 3, 3000


def _of(tensor: Any) -> Any:
    return tensor.shape, tensor.stride(), tensor.storage_offset()


class _Seen(TorchDispatchMode):  # type: ignore[misc]
    """Which operations ran, on tensors of which shapes. Views of what is there already are no work."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            leaves = tree_leaves((args, kwargs or {}))
            self.found.add((func, *(_of(each) if isinstance(each, torch.Tensor) else each for each in leaves)))
        return func(*args, **(kwargs or {}))


@contextmanager
def _seen() -> Iterator[set[Any]]:
    with _Seen() as mode:
        yield mode.found


def _logits(seed: int) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).normal(0.0, 3.0, (ROWS, KEPT, VOCABULARY)).astype(np.float32))


def _asked(seed: int) -> tuple[list[HeadOf], list[tuple[int, slice]]]:
    """Of some of the rows, in any order, some of the tokens."""
    generator = np.random.default_rng(seed)
    wanted, places = [], []
    for row in generator.permutation(ROWS)[: generator.integers(1, ROWS + 1)].tolist():
        below = int(generator.integers(1, VOCABULARY + 1))
        size = min(below, int(generator.choice([1, 8, 1024])))
        wanted.append(HeadOf(size, float(generator.uniform(0.1, 2.0)), below))
        first = int(generator.integers(0, KEPT))
        places.append((row, slice(first, int(generator.integers(first, KEPT)) + 1)))
    return wanted, places


@pytest.mark.parametrize("seed", range(20))
def test_each_head_is_that_of_its_row(seed: int) -> None:
    logits, (wanted, places) = _logits(seed), _asked(seed)
    rows = logits.double().numpy()
    for heads, each, (row, part) in zip(heads_of(logits, wanted, places), wanted, places, strict=True):
        for head, at in zip(heads, range(KEPT)[part], strict=True):
            numbers = rows[row, at, : each.below]
            assert len(head.ids) >= each.size
            order = np.argsort(-numbers)[: len(head.ids)]
            assert head.ids.tolist() == order.tolist()
            assert head.log_sum == pytest.approx(np.log(np.exp(numbers / each.temperature).sum()), rel=1e-5)
            assert np.array_equal(head.whole(), numbers.astype(np.float32))


def test_whatever_is_asked_has_shapes_that_loading_has_met() -> None:
    with _seen() as at_first:
        warm(_logits(0), VOCABULARY)
    for seed in range(20):
        logits, asked = _logits(seed), _asked(seed)
        with _seen() as later:
            for heads in heads_of(logits, *asked):
                heads[0].whole()
        assert later <= at_first
    with _seen() as beyond:
        heads_of(_logits(0), [HeadOf(2000, 1.0, VOCABULARY)], [(0, slice(0, 1))])
    assert not beyond <= at_first, "the check does find a shape that is new"


def test_copies_of_one_length_have_one_shape() -> None:
    cache = RowCache([LayerShape((2, 8), (2, 8))], ROWS, 64, torch.float32, torch.device("cpu"))
    cache.key0.copy_(torch.arange(cache.key0.numel()).reshape(cache.key0.shape))
    with _seen() as at_first:
        cache.copy(0, 1, 32)
    with _seen() as later:
        cache.copy(3, 2, 32)
    assert later == at_first
    assert torch.equal(cache.key0[2, :, :32], cache.key0[3, :, :32])
    assert not torch.equal(cache.key0[2, :, 32:], cache.key0[3, :, 32:])
