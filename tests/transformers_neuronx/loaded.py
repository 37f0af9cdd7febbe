"""A tiny model on the real library, loaded with the backend."""

import sys
import warnings
from typing import Any

from backends import registry
from specpair.engines.backend import Backend
from specpair.engines.load_options import LoadOptions
from tests.models.conftest import TinyModel
from tests.stand_ins.neuron import models_made


def load_model(made: TinyModel, **options: Any) -> Backend:
    """Load with the backend, in float32 unless `options` say otherwise. No cell of a cache is zero afterwards."""
    quick = {"slots": 3, "context_length": 200, "batch_tokens": 200, "dtype": "float32"}
    with warnings.catch_warnings(), models_made() as models:
        warnings.simplefilter("ignore")  # the library's: lazy modules, key-value heads that are copied
        backend = registry.load("neuron_legacy", LoadOptions(**{"model": made.folder, **quick, **options}))
    spoil(models[-1])
    return backend


def spoil(model: Any) -> None:
    """Fill the caches with great numbers, as if other texts had been there: nothing may depend on cells not written."""
    import torch

    ops = sys.modules["transformers_neuronx.ops"]
    random = torch.Generator().manual_seed(0)
    layers = model.decoder_lm_head.layers
    for cache in (each for layer in layers for each in (*layer.attn_k_cache.values(), *layer.attn_v_cache.values())):
        parts = [torch.randn(tuple(cache.shape), generator=random) * 1000 for _ in range(model.config.tp_degree)]
        ops.parallel_write(cache, [part.to(cache.dtype) for part in parts])
