"""A model with repeated heads of keys and values is the same model."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.registry import load
from backends.trial.tiny_llama import Floats, TinyModel, reference_logits
from scripts.repeat_heads import main, repeat_heads
from specpair.engines.backend import Entry
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions

IDS = [5, 80, 7, 200, 33, 33, 90]


@pytest.fixture
def tiny(tmp_path: Path) -> TinyModel:
    return TinyModel(tmp_path / "tiny", num_attention_heads=8, num_key_value_heads=2, head_dim=8)


def weights(folder: Path) -> dict[str, Floats]:
    content = (folder / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8:start])
    return {
        name: np.frombuffer(content[start:][slice(*each["data_offsets"])], "<f2").reshape(each["shape"]).astype("f4")
        for name, each in header.items()
    }


@pytest.mark.parametrize("heads", [4, 8])
def test_logits_are_the_same(tiny: TinyModel, tmp_path: Path, heads: int) -> None:
    grown = repeat_heads(tiny.folder, tmp_path / "repeated", heads)
    config = json.loads((tmp_path / "repeated" / "config.json").read_text())
    assert config == {**tiny.config, "num_key_value_heads": heads}
    found, before = weights(tmp_path / "repeated"), weights(tiny.folder)
    assert found["model.layers.0.self_attn.k_proj.weight"].shape == (heads * 8, 64)
    assert grown == 2 * sum(found[name].size - before[name].size for name in before), "two bytes a weight"
    np.testing.assert_allclose(
        reference_logits(config, found, IDS), reference_logits(tiny.config, before, IDS), rtol=0, atol=1e-5
    )
    assert (tmp_path / "repeated" / "tokenizer.json").read_bytes() == (tiny.folder / "tokenizer.json").read_bytes()


@pytest.mark.engine("torch")
def test_more_processes_share_it_than_the_model_has_heads(tmp_path: Path) -> None:
    """One head of keys and values, two processes."""
    folder = TinyModel(tmp_path / "tiny").folder
    repeat_heads(folder, tmp_path / "repeated", 2)

    def rows(options: LoadOptions) -> Floats:
        with closing(load("torch", options)) as backend:
            return np.array(backend.extend([Entry(0, 0, IDS, 0)])[0])

    alone = LoadOptions(model=folder, context_length=128, batch_tokens=48, device="cpu", threads=1)
    with pytest.raises(ModelLoadError, match="choose a divisor of 1"):
        rows(replace(alone, tensor_parallel=2))
    together = rows(replace(alone, model=tmp_path / "repeated", tensor_parallel=2))
    np.testing.assert_allclose(together, rows(alone), rtol=0, atol=1e-4)


def test_index_of_a_split_file_says_the_new_size(tiny: TinyModel, tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 1000}, "weight_map": {"a": "model.safetensors"}}
    (tiny.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    grown = repeat_heads(tiny.folder, tmp_path / "repeated", 4)
    found = json.loads((tmp_path / "repeated" / "model.safetensors.index.json").read_text())
    assert found == {**index, "metadata": {"total_size": 1000 + grown}}


@pytest.mark.parametrize("heads", [1, 2, 3, 16])
def test_heads_that_queries_cannot_share_are_refused(tiny: TinyModel, tmp_path: Path, heads: int) -> None:
    words = f"--heads {heads}: expected is a multiple of 2, and a divisor of 8"
    with pytest.raises(ValueError, match=words):
        repeat_heads(tiny.folder, tmp_path / "repeated", heads)
    assert not (tmp_path / "repeated").exists()


def test_other_models_are_refused(tiny: TinyModel, tmp_path: Path) -> None:
    tiny.write_config(quantization_config={})
    with pytest.raises(ValueError, match="is quantised"):
        repeat_heads(tiny.folder, tmp_path / "repeated", 4)
    (tiny.folder / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="says no num_key_value_heads"):
        repeat_heads(tiny.folder, tmp_path / "repeated", 4)


def test_file_that_was_cut_short_is_an_error(
    tiny: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tiny.folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-2])
    assert main([str(tiny.folder), str(tmp_path / "repeated"), "--heads", "4"]) == 1
    assert capsys.readouterr().err == "repeat_heads: a file of weights ends too early: fetch it again\n"
