"""The bytes that the library puts on each core are those that the backend expects."""

import math
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from backends.neuron_legacy.memory import LlamaSizes, kv_heads_held
from tests.transformers_neuronx.conftest import Load
from tests.transformers_neuronx.loaded import bytes_per_core, caches, weights

pytestmark = pytest.mark.engine("tnx")

HEADS = (  # query heads and key-value heads of usual models
    *((32, 8), (24, 8), (64, 8), (28, 4), (14, 2), (40, 8), (16, 8), (9, 3), (15, 5), (32, 4), (16, 2), (12, 2)),
    *((32, 32), (12, 12), (40, 40), (20, 20), (25, 25), (52, 52), (64, 64), (48, 8), (96, 8), (128, 8), (56, 8)),
    *((72, 24), (36, 12), (30, 10), (32, 16), (8, 2), (4, 2), (2, 1), (32, 1), (71, 71)),
)


@pytest.mark.parametrize("cores", [*range(1, 9), 10, 12, 16, 20, 24, 32, 64])
def test_heads_in_caches_are_those_of_the_library(library: ModuleType, cores: int) -> None:
    from transformers_neuronx import utils  # type: ignore[import-not-found]

    for heads, kv_heads in HEADS:
        sharding = None  # as the library decides where the caller does not (DecoderLmHead….check_gqa_fallback)
        if heads != kv_heads:
            sharding = library.GQA.REPLICATED_HEADS if kv_heads % cores else library.GQA.SHARD_OVER_HEADS
        _, held = utils.get_qkv_padding(heads, kv_heads, cores, SimpleNamespace(group_query_attention=sharding))
        assert kv_heads_held(heads, kv_heads, cores) == math.ceil(held / cores) * cores, (heads, kv_heads)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 1), (4, 2), (6, 6), (9, 3)])
@pytest.mark.parametrize("cores", [1, 2, 4, 8])
def test_weights_and_caches_have_the_bytes_that_the_backend_says(
    load: Load, heads: int, kv_heads: int, cores: int, dtype: str
) -> None:
    sizes = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": 4, "hidden_size": 4 * heads}
    sizes |= {"vocab_size": 262, "intermediate_size": 90}  # which eight cores do not divide
    loaded = load(sizes, tensor_parallel=cores, dtype=dtype, slots=2, context_length=127, batch_tokens=128)
    held = bytes_per_core(caches(loaded.model))
    assert loaded.backend.kv_bytes == held * cores
    expected = LlamaSizes(loaded.made.config, {"float32": 4, "bfloat16": 2}[dtype], slots=2, cells=128)
    assert bytes_per_core(weights(loaded.model)) == expected.weight_bytes(cores)
    assert expected.core_bytes(cores) == held + expected.weight_bytes(cores)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2)])
def test_one_core_holds_all_weights_but_the_embedding(load: Load, tied: bool, dtype: str, size: int) -> None:
    """The output embedding is on the core, a copy if it is tied. The host reads the other. Norms are float32."""
    loaded = load({"tie_word_embeddings": tied}, dtype=dtype, slots=1, context_length=127, batch_tokens=128)
    made = [each for name, each in loaded.made.weights.items() if name != "lm_head.weight"]
    expected = sum(each.size * (size if each.ndim == 2 else 4) for each in made)
    assert bytes_per_core(weights(loaded.model)) == expected


def test_cores_share_the_matrices_and_copy_the_norms(load: Load) -> None:
    loaded = load(tensor_parallel=2, slots=1, context_length=127, batch_tokens=128)
    made: dict[str, Any] = loaded.made.weights
    vectors = sum(each.size for each in made.values() if each.ndim == 1)
    matrices = sum(each.size for each in made.values() if each.ndim == 2)
    copied = sum(each.size for name, each in made.items() if "k_proj" in name or "v_proj" in name)  # of the one head
    assert bytes_per_core(weights(loaded.model)) == 4 * (vectors + (matrices + copied) // 2)
