"""On the real source of transformers-neuronx, every row of logits equals that of a pass without caches."""

from typing import Any

import pytest

from specpair.engines.backend import Entry
from tests.conftest import WORST
from tests.transformers_neuronx.conftest import Load
from tests.transformers_neuronx.loaded import IDS

pytestmark = pytest.mark.engine("tnx")

PASSES = ("one for all slots", "one for each slot")
LLAMA_3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def heads(queries: int, keys: int) -> dict[str, Any]:
    """Entries of a config for this many heads of 16 numbers."""
    sizes = {"num_attention_heads": queries, "num_key_value_heads": keys, "head_dim": 16}
    return {"hidden_size": 16 * queries, **sizes}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # changes of the model, options of the backend
    "three slots": ({}, {}),
    "one slot": ({}, {"slots": 1}),
    "own output embedding": ({"tie_word_embeddings": False}, {}),
    "Llama 3 positions": ({"rope_scaling": LLAMA_3}, {}),
    "several key-value heads": (heads(6, 2), {}),
    "as many key-value heads": (heads(4, 4), {}),
    "more slots than the narrowest pass is wide": ({}, {"slots": 6}),
    "two spans": ({}, {"compile_spans": (128,)}),
    "no prompt bucket between": ({}, {"context_length": 500, "batch_tokens": 100}),
    "two cores": (heads(4, 2), {"tensor_parallel": 2}),
    "two cores, a copied head": ({}, {"tensor_parallel": 2}),
    "two cores, one slot": (heads(4, 2), {"tensor_parallel": 2, "slots": 1}),
    "eight cores, heads copied and padded": (heads(4, 2), {"tensor_parallel": 8}),
    "eight cores, heads padded": (heads(12, 12), {"tensor_parallel": 8}),
}


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("case", CASES)
def test_random_batches_give_the_reference_logits(load: Load, record_property: Any, case: str, passes: str) -> None:
    changes, options = CASES[case]
    loaded = load(changes, one_pass_for_all=passes == PASSES[0], **options)
    worst = loaded.walk(60)
    record_property(WORST, worst)
    assert worst < 2e-4


@pytest.mark.parametrize(("dtype", "most"), [("bfloat16", 0.5), ("float16", 0.06)])
def test_halves_give_nearly_the_reference_logits(load: Load, record_property: Any, dtype: str, most: float) -> None:
    worst = load(dtype=dtype).walk(40)
    record_property(WORST, worst)
    assert worst < most


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("case", ["three slots", "own output embedding", "Llama 3 positions"])
def test_every_cell_of_a_slot_can_be_used(load: Load, record_property: Any, case: str, passes: str) -> None:
    loaded = load(CASES[case][0], one_pass_for_all=passes == PASSES[0], context_length=255, slots=2)
    texts: dict[int, list[int]] = {}
    batches = [Entry(1, 0, IDS[:200], logits_from) for logits_from in (0, 1, 100, 199)]
    batches += [Entry(1, start, IDS[start : min(255, start + 200)], 0) for start in (1, 60, 199, 250, 254)]
    worst = max(loaded.difference([entry], texts) for entry in batches)
    record_property(WORST, worst)
    assert worst < 2e-4
    assert len(texts[1]) == 255
