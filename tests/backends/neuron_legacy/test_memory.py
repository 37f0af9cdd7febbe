"""What a model takes of each core, and the degree that is chosen or refused for it."""

from pathlib import Path
from typing import Any

import pytest

from backends.neuron import trn2_core_bytes
from backends.neuron_legacy.memory import Chip, CoreMemory, LlamaSizes, kv_heads_held, this_chip
from specpair.engines.errors import ModelLoadError

GIB = 2**30
LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
LLAMA_1B = {**LLAMA_8B, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
LLAMA_70B = {
    **LLAMA_8B,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}
SMALL_BOX = Chip("trn1.2xlarge", (1, 2))
LARGE_BOX = Chip("trn1.32xlarge", (1, 2, 8, 32))


class Model:
    """Stands for a model; memory is reserved as long as it lives."""


def sizes(config: dict[str, Any], slots: int = 4, number_bytes: int = 2) -> LlamaSizes:
    return LlamaSizes(config, number_bytes, slots, 4096)


def test_bytes_of_a_model_of_8b() -> None:
    each = sizes(LLAMA_8B)
    parameters = 8_030_261_248 - 128256 * 4096  # the embeddings stay on the host
    assert each.weight_bytes(1) == 2 * parameters + 2 * 65 * 4096, "the norms are in float32"
    assert each.weight_bytes(2) == pytest.approx(parameters, rel=0.001), "the norms are on both cores"
    assert each.kv_bytes(1) == each.kv_bytes(8) == 4 * 4096 * 131072
    assert each.kv_bytes(32) == 4 * each.kv_bytes(8), "each of the 32 cores holds a key-value head"


def test_default_degree_is_the_least_that_fits() -> None:
    assert CoreMemory().reserve(Model(), sizes(LLAMA_8B), SMALL_BOX, None) == 2
    assert CoreMemory().reserve(Model(), sizes(LLAMA_1B), SMALL_BOX, None) == 1
    assert CoreMemory().reserve(Model(), sizes(LLAMA_70B), LARGE_BOX, None) == 32


def test_degree_at_which_a_model_does_not_fit_is_refused_with_one_that_does() -> None:
    with pytest.raises(ModelLoadError) as caught:
        CoreMemory().reserve(Model(), sizes(LLAMA_8B), SMALL_BOX, 1)
    assert str(caught.value) == (
        "tensor_parallel 1: each core needs 14.0 GiB for weights and 2.0 GiB for 4 slots of 4096 tokens, 14.4 GiB are "
        "there: it fits at 2"
    )
    assert caught.value.setting == "tensor_parallel"
    with pytest.raises(ModelLoadError, match=r"tensor_parallel 2: .* 14.4 GiB are there: lower slots or context"):
        CoreMemory().reserve(Model(), sizes(LLAMA_70B), SMALL_BOX, None)


def test_other_degrees_are_refused_with_the_list() -> None:
    with pytest.raises(ModelLoadError) as caught:
        CoreMemory().reserve(Model(), sizes(LLAMA_8B), LARGE_BOX, 4)
    assert str(caught.value) == "tensor_parallel 4: trn1.32xlarge supports 1, 2, 8, 32 cores for a model"


def test_models_of_a_process_share_degree_and_memory() -> None:
    memory, target, draft = CoreMemory(), Model(), Model()
    assert memory.reserve(target, sizes(LLAMA_8B), SMALL_BOX, None) == 2
    assert memory.reserve(draft, sizes(LLAMA_1B), SMALL_BOX, None) == 2
    with pytest.raises(ModelLoadError, match="a model of this process is split over 2 cores, and transformers-neuronx"):
        memory.reserve(Model(), sizes(LLAMA_1B), SMALL_BOX, 1)
    memory.release(draft)
    with pytest.raises(ModelLoadError, match=r"tensor_parallel 2: .* 6.4 GiB are there"):
        memory.reserve(draft, sizes(LLAMA_8B), SMALL_BOX, None)
    memory.release(target)
    assert memory.reserve(draft, sizes(LLAMA_1B), SMALL_BOX, 1) == 1
    memory.release(draft)
    memory.release(draft)
    assert memory.degree is None


def test_degree_at_which_all_models_fit_is_advised() -> None:
    """The first model takes the fewest cores, without regard to the second one."""
    memory, target, draft = CoreMemory(), Model(), Model()
    assert memory.reserve(target, sizes(LLAMA_1B, slots=80), SMALL_BOX, None) == 1
    with pytest.raises(ModelLoadError, match=r"tensor_parallel 1: .* all models of this process fit at 2$"):
        memory.reserve(draft, sizes(LLAMA_1B, slots=20), SMALL_BOX, None)
    memory.release(target)
    assert memory.reserve(target, sizes(LLAMA_1B, slots=80), SMALL_BOX, 2) == 2
    assert memory.reserve(draft, sizes(LLAMA_1B, slots=20), SMALL_BOX, None) == 2


def test_memory_of_a_forgotten_model_is_free() -> None:
    memory = CoreMemory()
    memory.reserve(Model(), sizes(LLAMA_8B), SMALL_BOX, None)
    assert memory.degree is None


@pytest.mark.parametrize(
    ("heads", "kv_heads", "cores", "held"),
    [
        *((32, 8, cores, held) for cores, held in ((1, 8), (2, 8), (8, 8), (10, 10), (12, 36), (16, 16), (32, 32))),
        *((28, 4, cores, held) for cores, held in ((2, 4), (8, 8), (12, 12), (24, 24), (32, 32))),
        *((24, 8, cores, held) for cores, held in ((3, 24), (6, 24), (10, 10), (12, 24), (16, 16), (24, 24))),
        *((12, 12, cores, held) for cores, held in ((1, 12), (8, 16), (24, 24))),
        *((9, 3, cores, held) for cores, held in ((2, 10), (3, 3), (4, 4), (6, 6), (8, 16))),
        *((72, 24, cores, held) for cores, held in ((16, 80), (24, 24), (32, 32))),
        *((2, 1, cores, held) for cores, held in ((1, 1), (2, 2))),
        *((14, 2, cores, held) for cores, held in ((24, 24),)),
    ],
)
def test_every_core_holds_at_least_one_head(heads: int, kv_heads: int, cores: int, held: int) -> None:
    """`make test-tnx` compares many more with the library's own padding."""
    assert kv_heads_held(heads, kv_heads, cores) == held


@pytest.mark.parametrize(
    ("product", "degrees"),
    [
        ("trn1.2xlarge", (1, 2)),
        ("trn1.32xlarge", (1, 2, 8, 32)),
        ("trn1n.32xlarge", (1, 2, 8, 32)),
        ("inf2.xlarge", (1, 2)),
        ("inf2.24xlarge", (1, 2, 4, 8)),
        ("inf2.48xlarge", (1, 2, 4, 8, 24)),
        ("inf2.new", (1, 2, 4, 8, 24)),
    ],
)
def test_degrees_follow_from_the_instance_type(tmp_path: Any, product: str, degrees: tuple[int, ...]) -> None:
    file = tmp_path / "product_name"
    file.write_text(product + "\n")
    chip = this_chip(file)
    assert (chip.name, chip.degrees, chip.core_bytes) == (product, degrees, 16 * GIB)


def test_unknown_machine_has_every_degree(tmp_path: Any) -> None:
    assert this_chip(tmp_path / "none").degrees == (1, 2, 4, 8, 24, 32)
    other = tmp_path / "other"
    other.write_bytes(b"Standard PC \xff")
    assert this_chip(other).degrees == (1, 2, 4, 8, 24, 32)


def test_newer_chips_are_refused(tmp_path: Any) -> None:
    file = tmp_path / "product_name"
    file.write_text("trn2.48xlarge")
    with pytest.raises(ModelLoadError) as caught:
        this_chip(file)
    assert str(caught.value) == (
        "neuron_legacy runs on trn1 and inf2, this machine is trn2.48xlarge: use the torch backend with device neuron"
    )


def test_memory_of_a_core_of_trn2_follows_from_the_instance(tmp_path: Path) -> None:
    file = tmp_path / "product_name"
    for name, variables, expected in (
        ("trn2.3xlarge", {}, 24),
        ("trn2u.48xlarge", {"NEURON_LOGICAL_NC_CONFIG": "2"}, 24),
        ("trn2.48xlarge", {"NEURON_LOGICAL_NC_CONFIG": "1"}, 12),
        ("trn1.2xlarge", {}, None),
        ("Some PC", {}, None),
    ):
        file.write_text(f"{name}\n", encoding="ascii")
        assert trn2_core_bytes(file, variables) == (None if expected is None else expected * 2**30)
    assert trn2_core_bytes(tmp_path / "none", {}) is None
