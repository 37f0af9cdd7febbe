"""A tiny model on the real library: loading it with the backend, comparing its logits, what the cores hold."""

import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backends import registry
from backends.trial.checks import random_batches
from specpair.engines.backend import Backend, Entry
from specpair.engines.load_options import LoadOptions
from tests.models.conftest import TinyModel, reference_logits
from tests.stand_ins.neuron import models_made, paying_from

IDS = [5 + 7 * number % 250 for number in range(1024)]


@dataclass(frozen=True)
class Loaded:
    """A loaded backend, with what its logits should be."""

    backend: Backend
    made: TinyModel
    model: Any  # the library's

    def expected(self, ids: Sequence[int]) -> Any:
        return reference_logits(self.made.config, self.made.weights, ids)

    def difference(self, batch: Sequence[Entry], texts: dict[int, list[int]]) -> float:
        """Run a batch; the greatest difference of its logits from the reference. `texts` is what the slots hold."""
        worst = 0.0
        for entry, got in zip(batch, self.backend.extend(batch), strict=True):
            texts[entry.slot] = [*texts.get(entry.slot, [])[: entry.start], *entry.tokens]
            wanted = self.expected(texts[entry.slot])[entry.start + entry.logits_from :]
            assert got.shape == wanted.shape
            worst = max(worst, float(np.abs(got - wanted).max(initial=0)))
        return worst

    def walk(self, turns: int, seed: int = 1) -> float:
        """The greatest difference in random batches with rollback over all slots."""
        texts: dict[int, list[int]] = {}
        return max(self.difference(batch, texts) for batch in random_batches(self.backend, turns, seed))


def load_model(made: TinyModel, one_pass_for_all: bool = True, **options: Any) -> Loaded:
    """Load with the backend, in float32 unless `options` say otherwise. No cell of a cache is zero afterwards.

    `one_pass_for_all`: whether it verifies all slots in one pass whenever it can, or never."""
    quick = {"slots": 3, "context_length": 200, "batch_tokens": 200, "dtype": "float32"}
    pays = paying_from(1 if one_pass_for_all else 99)
    with warnings.catch_warnings(), models_made() as models, pays:
        warnings.simplefilter("ignore")  # the library's: lazy modules, key-value heads that are copied
        backend = registry.load("neuron_legacy", LoadOptions(**{"model": made.folder, **quick, **options}))
    loaded = Loaded(backend, made, models[-1])
    spoil(loaded.model)
    return loaded


def caches(model: Any) -> Iterator[Any]:
    """The library's tensors of keys and values, as the programs see them."""
    for layer in model.decoder_lm_head.layers:
        yield from (*layer.attn_k_cache.values(), *layer.attn_v_cache.values())


def weights(model: Any) -> list[Any]:
    """The library's tensors of weights on the cores; the embedding is not among them, the host reads it."""
    head = model.decoder_lm_head
    return [each for layer in head.layers for each in layer.valid_parameters()] + [
        *head.pre_layer_parameters,
        *head.ln_lm_head_params,
    ]


def bytes_per_core(tensors: Iterator[Any] | Sequence[Any]) -> int:
    """Bytes that each core holds of these tensors."""
    return sum(math.prod(each.shape) * each.dtype.itemsize for each in tensors)


def spoil(model: Any) -> None:
    """Fill the caches with great numbers, as if other texts had been there: nothing may depend on cells not written."""
    import torch

    ops = sys.modules["transformers_neuronx.ops"]
    random = torch.Generator().manual_seed(0)
    for cache in caches(model):
        parts = [torch.randn(tuple(cache.shape), generator=random) * 1000 for _ in range(model.config.tp_degree)]
        ops.parallel_write(cache, [part.to(cache.dtype) for part in parts])
