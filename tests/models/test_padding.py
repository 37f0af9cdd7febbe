"""Padded models have the same output to the bit, at a higher cost."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFValueType

from models import DEFAULT_TARGET, DEFAULT_TWIN
from models.export import ExportError, export_hf, pad_layers
from models.gguf_file import Field, Gguf, Tensor, read_gguf, write_gguf
from models.transform import padded, widened


def bare(architecture: str = "llama", fields: Mapping[str, Field] = MappingProxyType({})) -> Gguf:
    """A model of two layers with few tiny tensors."""
    tensors = [
        Tensor(f"blk.{index}.{part}.weight", np.full((2, 32), index + 1, dtype=np.float32), GGMLQuantizationType.F32)
        for index in (0, 1)
        for part in ("attn_q", "attn_output", "ffn_down")
    ]
    count = {f"{architecture}.block_count": Field(2, GGUFValueType.UINT32)}
    return Gguf(architecture, {**count, **fields}, tensors)


@pytest.mark.parametrize("source", [DEFAULT_TARGET, DEFAULT_TWIN], ids=["q8_0", "q4_0"])
@pytest.mark.parametrize("threads", [1, 2])
def test_padded_model_has_equal_logits_to_the_bit(tmp_path: Path, engine: Any, source: Path, threads: int) -> None:
    pad_layers(source, tmp_path / "heavy.gguf", 5, 3)
    light, heavy = engine(source, threads), engine(tmp_path / "heavy.gguf", threads)
    ids = light.encode("def read(path):\n    with open(path) as file:\n        return file.", special=True)
    np.testing.assert_array_equal(light.logits(ids), heavy.logits(ids))
    position = len(ids)
    for width in (1, 4, 1):  # a step of decoding, a draft to verify, a step again
        ids = [int(token) for token in range(300, 300 + width)]
        np.testing.assert_array_equal(light.logits(ids, position), heavy.logits(ids, position))
        position += width


def test_padded_float_model_has_equal_logits(tmp_path: Path, tiny: Any, engine: Any) -> None:
    export_hf(tiny().folder, tmp_path / "light.gguf", "f16")
    pad_layers(tmp_path / "light.gguf", tmp_path / "heavy.gguf", 3, 2)
    ids = [0, 5, 9, 200]
    light, heavy = engine(tmp_path / "light.gguf"), engine(tmp_path / "heavy.gguf")
    np.testing.assert_array_equal(light.logits(ids), heavy.logits(ids))


def test_every_added_layer_has_its_own_bytes(tmp_path: Path) -> None:
    pad_layers(DEFAULT_TARGET, tmp_path / "heavy.gguf", 16)
    layer = sum(t.data.nbytes for t in read_gguf(DEFAULT_TARGET).tensors if t.name.startswith("blk.0."))
    grown = (tmp_path / "heavy.gguf").stat().st_size - DEFAULT_TARGET.stat().st_size
    assert 16 * layer <= grown < 16 * layer + 20_000  # names and metadata
    allocated = (tmp_path / "heavy.gguf").stat().st_blocks * 512
    assert allocated >= 24 * layer  # no holes in place of the zeros


def test_layers_are_copied_in_turn_with_zero_outputs() -> None:
    added = {tensor.name: float(tensor.data[0, 0]) for tensor in padded(bare(), 3).tensors[6:]}
    assert added == {
        **{f"blk.{index}.attn_q.weight": value for index, value in ((2, 1.0), (3, 2.0), (4, 1.0))},
        **{f"blk.{index}.{part}.weight": 0.0 for index in (2, 3, 4) for part in ("attn_output", "ffn_down")},
    }


def test_metadata_states_the_added_layers() -> None:
    heads = Field([4, 8], GGUFValueType.ARRAY, GGUFValueType.INT32)
    name = Field("a model", GGUFValueType.STRING)
    model = padded(bare(fields={"llama.attention.head_count": heads, "general.name": name}), 3)
    assert model.layers == 5
    assert model.get("attention.head_count") == [4, 8, 4, 8, 4]
    assert model.fields["general.name"].value == "a model +3 pad layers"
    assert model.fields["specpair.pad_layers"].value == 3


def test_padding_adds_up_and_padding_by_0_changes_nothing(tmp_path: Path, tiny: Any) -> None:
    export_hf(tiny().folder, tmp_path / "light.gguf", "q8_0")
    pad_layers(tmp_path / "light.gguf", tmp_path / "once.gguf", 2)
    pad_layers(tmp_path / "once.gguf", tmp_path / "twice.gguf", 3)
    assert read_gguf(tmp_path / "twice.gguf").layers == 7
    assert read_gguf(tmp_path / "twice.gguf").fields["specpair.pad_layers"].value == 5
    pad_layers(tmp_path / "light.gguf", tmp_path / "same.gguf", 0)
    assert (tmp_path / "same.gguf").read_bytes() == (tmp_path / "light.gguf").read_bytes()


def test_neurons_are_copied_with_zero_outputs() -> None:
    def part(name: str, *shape: int) -> Tensor:
        data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        return Tensor(f"blk.0.{name}", data, GGMLQuantizationType.F32)

    tensors = [part("ffn_gate.weight", 4, 2), part("ffn_up.bias", 4), part("ffn_down.weight", 2, 4)]
    tensors += [part("ffn_down.bias", 2), part("attn_output.weight", 2, 2)]
    fields = {"block_count": 1, "feed_forward_length": 4}
    name = {"general.name": Field("a model", GGUFValueType.STRING)}
    counts = {f"llama.{key}": Field(value, GGUFValueType.UINT32) for key, value in fields.items()}
    light = Gguf("llama", {**name, **counts}, tensors)
    heavy = widened(light, 3)
    gate, up_bias, down, down_bias, attention = (tensor.data for tensor in heavy.tensors)
    np.testing.assert_array_equal(gate, np.tile(tensors[0].data, (3, 1)))
    np.testing.assert_array_equal(up_bias, np.tile(tensors[1].data, 3))
    np.testing.assert_array_equal(down, np.hstack([tensors[2].data, np.zeros((2, 8), np.float32)]))
    assert down_bias is tensors[3].data
    assert attention is tensors[4].data
    assert heavy.get("feed_forward_length") == 12
    assert heavy.fields["general.name"].value == "a model x3 width"
    assert widened(heavy, 2).fields["specpair.pad_width"].value == 6
    assert widened(light, 1) is light


def test_existing_file_is_replaced(tmp_path: Path, tiny: Any) -> None:
    export_hf(tiny().folder, tmp_path / "light.gguf", "q8_0")
    (tmp_path / "heavy.gguf").write_bytes(b"old")
    pad_layers(tmp_path / "light.gguf", tmp_path / "heavy.gguf", 1)
    assert read_gguf(tmp_path / "heavy.gguf").layers == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["heavy.gguf", "light.gguf", "tiny"]


@pytest.mark.parametrize(
    ("model", "layers", "message"),
    [
        (bare(), -1, "cannot add -1 layers"),
        (bare(), 511, r"2 \+ 511 layers are too many: llama.cpp takes 512, so add at most 510"),
        (bare("mamba"), 1, "cannot pad a mamba model"),
        (Gguf("llama", bare().fields, bare().tensors[:-1]), 1, "layer 1 has no ffn_down.weight"),
        (Gguf("llama", {}, bare().tensors), 1, "declares no llama.block_count"),
    ],
)
def test_unsupported_padding_is_refused(model: Gguf, layers: int, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        padded(model, layers)


def test_width_below_1_is_refused() -> None:
    with pytest.raises(ExportError, match="cannot make the layers 0 times as wide: give a number from 1 up"):
        widened(bare(), 0)
    with pytest.raises(ExportError, match="cannot pad a mamba model"):
        widened(bare("mamba"), 2)


def test_part_of_a_split_model_is_refused(tmp_path: Path) -> None:
    write_gguf(bare(fields={"split.count": Field(2, GGUFValueType.UINT16)}), tmp_path / "part.gguf")
    with pytest.raises(ExportError, match="one part of a split model: join the parts"):
        pad_layers(tmp_path / "part.gguf", tmp_path / "out.gguf", 1)
