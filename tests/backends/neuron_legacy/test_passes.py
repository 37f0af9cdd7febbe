"""Any number of tokens is cut into compiled widths, and padding never overwrites a valid token."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.neuron import trn2_core_bytes
from backends.neuron_legacy.memory import Chip, CoreMemory, LlamaSizes, kv_heads_held, this_chip
from backends.neuron_legacy.passes import Programs, cells_for, cells_of, programs_for
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions

VERIFY = (4, 13, 30)


def programs(context: int = 4095, batch_tokens: int = 512, slots: int = 4, **options: Any) -> Programs:
    return programs_for(LoadOptions(model=Path("/model"), **options), slots, context, batch_tokens)


def test_widths_that_the_library_would_not_find_are_refused() -> None:
    """It bisects the list of a set, in Python's order of sets."""
    assert list(set(VERIFY)) == list(VERIFY)
    assert programs(compile_widths=(4, 8, 16, 30, 63)).verify[-1] == 63
    with pytest.raises(
        ModelLoadError, match="compile_widths 4,8,16,32,64: transformers-neuronx bisects a set"
    ) as caught:
        programs(compile_widths=(4, 8, 16, 32, 64))
    assert caught.value.setting == "compile_widths"


@given(st.integers(0, 1500), st.data())
def test_pieces_cover_all_tokens_in_order(count: int, data: st.DataObject) -> None:
    logits_from = data.draw(st.integers(0, count))
    made = programs()
    at = 0
    pieces = made.pieces(count, logits_from)
    for piece in pieces:
        assert piece.first == at
        assert 1 <= piece.size <= piece.width
        assert piece.width in (made.continuations if piece.last_only else made.verify)
        at += piece.size
        if piece.last_only:
            assert at <= logits_from + 1, "the logits of its last token are all that a continuation returns"
    assert at == count
    assert [piece.last_only for piece in pieces] == sorted((piece.last_only for piece in pieces), reverse=True)


@pytest.mark.parametrize(
    ("count", "logits_from", "widths"),
    [
        (1, 0, [4]),
        (5, 0, [13]),
        (17, 17, [30]),
        (64, 0, [30, 30, 4]),
        (64, 63, [128]),
        (64, 64, [128]),
        (200, 199, [512]),
        (600, 600, [512, 128]),
        (200, 150, [512, 30, 30]),
    ],
)
def test_fewest_passes_of_the_narrowest_sufficient_widths(count: int, logits_from: int, widths: list[int]) -> None:
    assert [piece.width for piece in programs().pieces(count, logits_from)] == widths


def test_padding_is_behind_the_tokens_or_in_the_last_cell() -> None:
    assert cells_of(10, 4, 128) == [10, 11, 12, 13]
    assert cells_of(125, 8, 128) == [125, 126, 127, 127, 127, 127, 127, 127]
    for context in (2, 127, 128, 383, 4095):
        cells = cells_for(context)
        for start in range(max(1, context - 70), context):
            taken = cells_of(start, 63, cells)
            tokens = taken[: context - start]
            assert min(taken) == start
            assert max(taken) < cells
            assert len(set(tokens)) == len(tokens), "every token that fits has a cell of its own"
            assert cells - 1 not in tokens


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
    assert (chip.name, chip.degrees) == (product, degrees)


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
